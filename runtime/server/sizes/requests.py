"""How many requests run at once, and the batches that a start captures for them."""

from __future__ import annotations

from runtime.server.config import RuntimeConfig
from runtime.server.parallel import ParallelConfig

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096


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
