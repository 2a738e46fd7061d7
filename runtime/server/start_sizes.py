"""The sizes that a start settles before it allocates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig


@dataclass(frozen=True, slots=True)
class StartSizes:
    """`chunk` is the tokens of one rank's prefill; `width` the tokens that a decode step brings a request."""

    mem_fraction: float
    context_length: int
    chunk: int
    width: int
    prefill_graphs: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        """For the run's file."""
        return {
            "mem_fraction_static": self.mem_fraction,
            "context_length": self.context_length,
            "chunked_prefill_size": self.chunk,
            "prefill_graphs": self.prefill_graphs,
        }


def start_sizes(model: ModelConfig, runtime: RuntimeConfig) -> StartSizes:
    return StartSizes(
        mem_fraction=runtime.mem_fraction_static,
        context_length=runtime.context_length or model.max_position,
        chunk=runtime.prefill_tokens,
        width=runtime.width,
        prefill_graphs=runtime.prefill_graphs,
    )


def captured_sizes(
    requests: int, parallel: ParallelConfig, runtime: RuntimeConfig, drafts: bool = False
) -> tuple[int, ...]:
    """Decode graphs of up to the requests that may run, such that whoever shares their rows can split them:
    get_batch_sizes_to_capture of srt/model_executor/runner/base_cuda_graph_runner.py, which those of `drafts`
    do not tell how many rows a request has."""
    step = _shared_by(parallel, runtime)
    most = -(-requests // step) * step
    sizes = {size for size in runtime.decode_graphs if size <= most}
    if runtime.decode_graphs and max(runtime.decode_graphs) > most:
        sizes.add(most)
    width = 1 if drafts else runtime.width  # each batch is of whole requests
    return tuple(sorted(size for size in sizes if size * width % step == 0))


def _shared_by(parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """get_cuda_graph_batch_size_alignment of srt/utils/common.py."""
    scattered = parallel.gathers_rows(runtime.moe_a2a_backend) or runtime.tells_dense_split
    return parallel.attn_tp if scattered else 1
