"""How many requests run at once, how many rows the kernels get, and which batches a start captures."""

from dataclasses import dataclass
from typing import Literal

from runtime.server.config import RuntimeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.shape import Server

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096

# The rows of all attention-DP ranks, of this rank's group, or this rank's part of its group's.
Seen = Literal["gathered", "own", "scattered"]


def max_running_requests(tokens: int, context_length: int, requested: int | None, attn_dp: int) -> int:
    """Return the limit of one attention-DP rank."""
    estimated = min(max(int(tokens / context_length * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    return min(estimated if requested is None else share_of(requested, attn_dp), tokens // 2)


def share_of(requested: int, ranks: int) -> int:
    """Return one rank's share of the requests that were set for the whole server."""
    return max(1, requested // ranks)


def captured_sizes(
    requests: int, parallel: ParallelConfig, runtime: RuntimeConfig, drafts: bool = False
) -> tuple[int, ...]:
    """Return the sizes of decode graphs, up to the requests that may run, whose rows the ranks can divide:
    get_batch_sizes_to_capture of srt/model_executor/runner/base_cuda_graph_runner.py. Graphs of `drafts` call
    it without the rows per request."""
    step = parallel.attn_tp if parallel.gathers_rows(runtime.kernels.a2a) else 1
    most = -(-requests // step) * step
    sizes = {size for size in runtime.graphs.decode if size <= most}
    if runtime.graphs.decode and max(runtime.graphs.decode) > most:
        sizes.add(most)
    width = 1 if drafts else runtime.width  # each batch is of whole requests
    return tuple(sorted(size for size in sizes if size * width % step == 0))


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Upper bounds of the rows in the tuning batch and in a prefill."""

    tuning: int
    prefill: int

    @property
    def serving(self) -> int:
        return max(self.tuning, self.prefill)


def batch_rows(server: Server, seen: Seen = "gathered") -> BatchRows:
    """Return the bounds. If the number of requests depends on the KV pool, its upper bound is used."""
    width = server.runtime.width
    dummy = aligned_rows(server.dummy_batch_rows // width, width, server.parallel)
    dummy, prefill = (_as_seen(rows, server, seen) for rows in (dummy, server.runtime.prefill_tokens))
    return BatchRows(dummy, prefill)


def _as_seen(rows: int, server: Server, seen: Seen) -> int:
    if seen == "gathered":
        return rows * server.parallel.attn_dp
    return -(-rows // server.parallel.attn_tp) if seen == "scattered" else rows


def aligned_rows(requests: int, width: int, parallel: ParallelConfig) -> int:
    """Return the rows of one rank's dummy batch, divisible by the attention-TP ranks under DP attention."""
    if parallel.enable_dp_attention:
        requests = -(-requests // parallel.attn_tp) * parallel.attn_tp
    return requests * width
