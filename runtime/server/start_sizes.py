"""The sizes a start settles before it allocates: SGLang's defaults for whatever the flags leave open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.forward.dp_attention import needs_attn_tp_gather, needs_mlp_gather
from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig
from runtime.server.sizing import (
    chunk_per_rank,
    decode_graph_sizes,
    default_mem_fraction,
    gpu_defaults,
    prefill_graph_max_tokens,
    prefill_graph_sizes,
)


@dataclass(frozen=True, slots=True)
class StartSizes:
    """`chunk` is the tokens of one rank's prefill; `width` the tokens that a decode step brings a request."""

    mem_fraction: float
    context_length: int
    chunk: int
    decode_max_bs: int
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

    def decode_graphs(
        self, requests: int, parallel: ParallelConfig, runtime: RuntimeConfig
    ) -> tuple[int, ...]:
        """Sizes up to the requests that may run, such that attention-TP ranks can split gathered rows."""
        if runtime.disable_cuda_graph:
            return ()
        gathers = needs_mlp_gather(parallel) or needs_attn_tp_gather(parallel, runtime.moe_a2a_backend)
        step = parallel.attn_tp if gathers else 1
        top = max(1, min(self.decode_max_bs, requests))
        sizes = decode_graph_sizes(top, speculative=runtime.speculative is not None)
        return tuple(size for size in sizes if size * self.width % step == 0)


def start_sizes(
    gpu_mib: float, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig
) -> StartSizes:
    defaults = gpu_defaults(gpu_mib, parallel.tp, runtime.sglang_version)
    chunk = chunk_per_rank(runtime.chunked_prefill_size or defaults.chunked_prefill_size, parallel)
    prefill: tuple[int, ...] = ()
    if not (runtime.disable_cuda_graph or runtime.disable_prefill_graph):
        top = prefill_graph_max_tokens(chunk, model.is_mla, runtime.sglang_version)
        prefill = prefill_graph_sizes(top)
    fraction = runtime.mem_fraction_static
    if fraction is None:
        fraction = default_mem_fraction(gpu_mib, model, parallel, runtime)
    return StartSizes(
        mem_fraction=fraction,
        context_length=runtime.context_length or model.max_position,
        chunk=chunk,
        decode_max_bs=runtime.cuda_graph_max_bs or defaults.decode_graph_max_bs,
        width=runtime.speculative.num_draft_tokens if runtime.speculative else 1,
        prefill_graphs=prefill,
    )
