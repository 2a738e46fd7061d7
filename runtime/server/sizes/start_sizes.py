"""The batches that a start captures, once it knows how many requests may run."""

from __future__ import annotations

from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig


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
