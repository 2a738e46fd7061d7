"""A server as the core plans it: arguments typed and resolved. Plans, tuning and predictions read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runtime.server.asked import Asked
from runtime.server.backends import MoEBackendRow, backend_row
from runtime.server.cache_key import cache_key
from runtime.server.config import RuntimeConfig
from runtime.server.gpus import GpuModel
from runtime.server.parallel import ParallelConfig


@dataclass(frozen=True, slots=True)
class Tuning:
    """Whether a worker tunes, the reason, and the parts of its cache's key."""

    tunes: bool
    because: str
    key_parts: tuple[str, ...]

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)


@dataclass(frozen=True, slots=True)
class Server:
    """A resolved server. `draft`: the tuning of the draft worker; `runtime`: the settings of one rank."""

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
    def backend(self) -> MoEBackendRow:
        return backend_row(self.runtime.kernels.moe)

    def as_draft(self) -> Server:
        """Return the draft worker as a server: its quantization argument is that of the target's weights."""
        assert self.draft is not None
        return replace(
            self, quantization=self.model_quantization, tuning=self.draft, draft=None, is_draft=True
        )

    def to_json(self) -> dict[str, Any]:
        runtime, draft = self.runtime, self.draft
        one = runtime.speculative
        drafted = [one.num_steps, one.eagle_topk, one.num_draft_tokens] if one else None
        return {
            "config_class": self.config_class,
            "dtype": runtime.dtype,
            "quantization": self.quantization,
            "kv_cache_dtype": runtime.cache.dtype,
            "page_size": runtime.cache.page_size,
            "attention_backend": runtime.kernels.attention,
            "moe_runner_backend": runtime.kernels.moe,
            "moe_a2a_backend": runtime.kernels.a2a,
            "ep_size": self.parallel.ep,
            "attn_dp_size": self.parallel.attn_dp,
            "context_length": runtime.context_length,
            "chunked_prefill_size": self.chunked_prefill_size,
            "mem_fraction_static": round(runtime.mem_fraction_static, 3),
            "max_running_requests": runtime.max_running_requests,
            "dummy_batch_rows": self.dummy_batch_rows,
            "decode_graphs": list(runtime.graphs.decode),
            "prefill_graphs": list(runtime.graphs.prefill),
            "speculative": drafted,
            "tunes": self.tuning.tunes,
            "draft": {"key": draft.key, "tunes": draft.tunes} if draft else None,
        }
