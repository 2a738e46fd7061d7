"""How many requests run at once, how many rows kernels see of them, and the batches that a start captures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.server.config import RuntimeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.shape import Server

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096

# Of all attention-DP ranks, of this one's group, this rank's part of the group's.
Seen = Literal["gathered", "own", "scattered"]


def max_running_requests(tokens: int, context_length: int, requested: int | None, attn_dp: int) -> int:
    """Of one rank of attention's data parallelism."""
    estimated = min(max(int(tokens / context_length * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    return min(estimated if requested is None else share_of(requested, attn_dp), tokens // 2)


def share_of(requested: int, ranks: int) -> int:
    """One rank's of those that were asked for of the whole server."""
    return max(1, requested // ranks)


def captured_sizes(
    requests: int, parallel: ParallelConfig, runtime: RuntimeConfig, drafts: bool = False
) -> tuple[int, ...]:
    """Decode graphs of up to the requests that may run, such that whoever shares their rows can split them:
    get_batch_sizes_to_capture of srt/model_executor/runner/base_cuda_graph_runner.py, which those of `drafts`
    do not tell how many rows a request has."""
    step = parallel.attn_tp if parallel.gathers_rows(runtime.kernels.a2a) else 1
    most = -(-requests // step) * step
    sizes = {size for size in runtime.graphs.decode if size <= most}
    if runtime.graphs.decode and max(runtime.graphs.decode) > most:
        sizes.add(most)
    width = 1 if drafts else runtime.width  # each batch is of whole requests
    return tuple(sorted(size for size in sizes if size * width % step == 0))


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Upper bounds."""

    tuning: int
    prefill: int

    @property
    def serving(self) -> int:
        return max(self.tuning, self.prefill)


def batch_rows(server: Server, seen: Seen = "gathered") -> BatchRows:
    """The number of requests depends on the KV pool unless it is given: then its upper bound is taken."""
    width = server.runtime.width
    dummy = aligned_rows(server.dummy_batch_rows // width, width, server.parallel)
    dummy, prefill = (_as_seen(rows, server, seen) for rows in (dummy, server.runtime.prefill_tokens))
    return BatchRows(dummy, prefill)


def _as_seen(rows: int, server: Server, seen: Seen) -> int:
    if seen == "gathered":
        return rows * server.parallel.attn_dp
    return -(-rows // server.parallel.attn_tp) if seen == "scattered" else rows


def aligned_rows(requests: int, width: int, parallel: ParallelConfig) -> int:
    """Of one rank's dummy batch: attention-TP ranks share it evenly where DP attention must sync."""
    if parallel.enable_dp_attention:
        requests = -(-requests // parallel.attn_tp) * parallel.attn_tp
    return requests * width
