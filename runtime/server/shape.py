"""One server: what was asked, what it became and why. Everything that plans, tunes or predicts reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.server.asked import Asked
from runtime.server.cache_key import KeyInputs, cache_key, key_parts
from runtime.server.gpus import GpuModel
from runtime.server.releases import Release


@dataclass(frozen=True, slots=True)
class Speculation:
    algorithm: str
    steps: int
    topk: int
    draft_tokens: int


@dataclass(frozen=True, slots=True)
class DraftServer:
    """The draft worker: a model of its own, with a cache of its own, on the target's ranks."""

    model_path: str
    config_class: str
    quantization: str | None
    moe_runner_backend: str
    tunes: bool
    key_parts: tuple[str, ...]

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)


@dataclass(frozen=True, slots=True)
class Server:
    """`why` names the rule behind each value that nobody asked for in so many words."""

    asked: Asked
    release: Release
    gpu: GpuModel
    config_class: str
    dtype: str
    quantization: str | None
    model_quantization: str | None
    kv_cache_dtype: str
    page_size: int
    prefill_attention_backend: str
    decode_attention_backend: str
    moe_runner_backend: str
    moe_a2a_backend: str
    tp_size: int
    pp_size: int
    ep_size: int
    dp_size: int
    attn_dp_size: int
    context_length: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    mem_fraction_static: float
    max_running_requests: int | None
    dummy_batch_rows: int
    decode_graphs: tuple[int, ...]
    prefill_graphs: tuple[int, ...]
    speculative: Speculation | None
    disaggregation_mode: str
    tunes: bool
    tunes_because: str
    draft: DraftServer | None
    why: Mapping[str, str]

    @property
    def key_inputs(self) -> KeyInputs:
        return KeyInputs(
            model_path=self.asked.model_path,
            dtype=self.dtype,
            quantization=self.quantization,
            moe_runner_backend=self.moe_runner_backend,
            tp=self.tp_size,
            pp=self.pp_size,
            attn_dp=self.attn_dp_size,
            moe_ep=self.ep_size,
            config_class=self.config_class,
            skip_ops=self.asked.flashinfer_autotune_skip_ops,
        )

    @property
    def key_parts(self) -> tuple[str, ...]:
        return key_parts(self.release, self.key_inputs)

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)

    @property
    def attention_backend(self) -> str:
        """`fa3`, or `flashinfer/triton` where prefill and decode differ."""
        prefill, decode = self.prefill_attention_backend, self.decode_attention_backend
        return prefill if prefill == decode else f"{prefill}/{decode}"

    def to_json(self) -> dict[str, Any]:
        speculative, draft = self.speculative, self.draft
        return {
            "config_class": self.config_class,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "page_size": self.page_size,
            "attention_backend": self.attention_backend,
            "moe_runner_backend": self.moe_runner_backend,
            "moe_a2a_backend": self.moe_a2a_backend,
            "ep_size": self.ep_size,
            "attn_dp_size": self.attn_dp_size,
            "context_length": self.context_length,
            "chunked_prefill_size": self.chunked_prefill_size,
            "mem_fraction_static": self.mem_fraction_static,
            "max_running_requests": self.max_running_requests,
            "dummy_batch_rows": self.dummy_batch_rows,
            "decode_graphs": list(self.decode_graphs),
            "prefill_graphs": list(self.prefill_graphs),
            "speculative": [speculative.steps, speculative.topk, speculative.draft_tokens]
            if speculative
            else None,
            "tunes": self.tunes,
            "draft": {"key": draft.key, "tunes": draft.tunes} if draft else None,
        }
