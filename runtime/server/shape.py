"""One server of the core: what was asked and what it became. All that plans, tunes or predicts reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runtime.server.asked import Asked
from runtime.server.backends import MoEBackendRow, backend_row
from runtime.server.cache_key import cache_key
from runtime.server.config import Graphs, RuntimeConfig, SpeculativeConfig
from runtime.server.gpus import GpuModel
from runtime.server.parallel_config import ParallelConfig


@dataclass(frozen=True, slots=True)
class Tuning:
    """Whether a worker tunes, why, and what its cache's key is made of."""

    tunes: bool
    because: str
    key_parts: tuple[str, ...]

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)


@dataclass(frozen=True, slots=True)
class Server:
    """`draft`: the tuning of the worker that drafts, on the same ranks; `runtime`: what one rank goes by."""

    asked: Asked
    gpu: GpuModel
    parallel: ParallelConfig
    config_class: str
    quantization: str | None  # the argument
    model_quantization: str | None  # how the weights are stored
    chunked_prefill_size: int
    dummy_batch_rows: int
    runtime: RuntimeConfig
    tuning: Tuning
    draft: Tuning | None = None
    is_draft: bool = False

    @property
    def key_parts(self) -> tuple[str, ...]:
        return self.tuning.key_parts

    @property
    def key(self) -> str:
        return self.tuning.key

    @property
    def tunes(self) -> bool:
        return self.tuning.tunes

    @property
    def tunes_because(self) -> str:
        return self.tuning.because

    @property
    def dtype(self) -> str:
        return self.runtime.dtype

    @property
    def moe_runner_backend(self) -> str:
        return self.runtime.kernels.moe

    @property
    def backend(self) -> MoEBackendRow:
        return backend_row(self.moe_runner_backend)

    @property
    def moe_a2a_backend(self) -> str:
        return self.runtime.kernels.a2a

    @property
    def fp4_gemm_backend(self) -> str:
        return self.runtime.kernels.fp4_gemm

    @property
    def attn_dp_size(self) -> int:
        return self.parallel.attn_dp

    @property
    def max_running_requests(self) -> int | None:
        return self.runtime.max_running_requests

    @property
    def graphs(self) -> Graphs:
        return self.runtime.graphs

    @property
    def speculative(self) -> SpeculativeConfig | None:
        return self.runtime.speculative

    @property
    def prefill_tokens(self) -> int:
        """The most that one rank prefills at once."""
        return self.runtime.prefill_tokens

    def as_draft(self) -> Server:
        """The draft worker as a server of its own: its argument is how its target's weights are stored."""
        assert self.draft is not None
        return replace(
            self, quantization=self.model_quantization, tuning=self.draft, draft=None, is_draft=True
        )

    def to_json(self) -> dict[str, Any]:
        one, draft, runtime = self.speculative, self.draft, self.runtime
        drafted = [one.num_steps, one.eagle_topk, one.num_draft_tokens] if one else None
        return {
            "config_class": self.config_class,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "kv_cache_dtype": runtime.cache.dtype,
            "page_size": runtime.cache.page_size,
            "attention_backend": runtime.kernels.attention,
            "moe_runner_backend": self.moe_runner_backend,
            "moe_a2a_backend": self.moe_a2a_backend,
            "ep_size": self.parallel.ep,
            "attn_dp_size": self.attn_dp_size,
            "context_length": runtime.context_length,
            "chunked_prefill_size": self.chunked_prefill_size,
            "mem_fraction_static": round(runtime.mem_fraction_static, 3),
            "max_running_requests": self.max_running_requests,
            "dummy_batch_rows": self.dummy_batch_rows,
            "decode_graphs": list(self.graphs.decode),
            "prefill_graphs": list(self.graphs.prefill),
            "speculative": drafted,
            "tunes": self.tunes,
            "draft": {"key": draft.key, "tunes": draft.tunes} if draft else None,
        }
