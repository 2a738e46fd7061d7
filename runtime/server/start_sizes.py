"""The sizes that a start settles before it allocates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.server.captured_layers import captures_prefills
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


def start_sizes(model: ModelConfig, runtime: RuntimeConfig, stages: int) -> StartSizes:
    return StartSizes(
        mem_fraction=runtime.mem_fraction_static,
        context_length=runtime.context_length or model.max_position,
        chunk=runtime.prefill_tokens,
        width=runtime.width,
        prefill_graphs=runtime.prefill_graphs if captures_prefills(model, runtime, stages) else (),
    )


def captured_sizes(requests: int, parallel: ParallelConfig, runtime: RuntimeConfig) -> tuple[int, ...]:
    """Decode graphs of up to the requests that may run, such that attention-TP ranks can split their rows."""
    sizes = {size for size in runtime.decode_graphs if size <= requests}
    if runtime.decode_graphs and max(runtime.decode_graphs) > requests:
        sizes.add(requests)
    step = parallel.attn_tp if parallel.gathers_rows(runtime.moe_a2a_backend) else 1
    return tuple(sorted(size for size in sizes if size * runtime.width % step == 0))
