"""One server of the core: what was asked and what it became. All that plans, tunes or predicts reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runtime.server.asked import Asked
from runtime.server.backends import MoEBackendRow, backend_row
from runtime.server.cache_key import cache_key
from runtime.server.config import RuntimeConfig
from runtime.server.gpus import GpuModel
from runtime.server.parallel_config import HeadOver, ParallelConfig
from runtime.server.recurrent import StateRules
from runtime.server.requests import arriving_beside, share_of
from runtime.server.speculative_config import SpeculativeConfig

_FULL_NAMES = {"bf16": "bfloat16"}
# SGLANG_SPEC_EXPANSION_SAFETY_FACTOR, SGLANG_ROPE_CACHE_SAFETY_MARGIN and SGLANG_ROPE_CACHE_ALIGN
_SAFETY, _MARGIN, _ALIGNED = 2, 256, 128


@dataclass(frozen=True, slots=True)
class Speculation:
    steps: int
    topk: int
    draft_tokens: int
    is_counted: bool  # its layers' keys and values, when the pool is sized


@dataclass(frozen=True, slots=True)
class DraftServer:
    """The draft worker: one more layer of the model, with a cache of its own, on the target's ranks."""

    architecture: str
    quantization: str | None
    moe_runner_backend: str
    tunes: bool
    tunes_because: str
    key_parts: tuple[str, ...]

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)


@dataclass(frozen=True, slots=True)
class Attending:
    """Which kernels attend, and how keys and values lie."""

    prefill: str
    decode: str
    kv_cache_dtype: str
    page_size: int
    packs_latents: bool  # of sparse attention, in fp8, with scales

    @property
    def backend(self) -> str:
        """`fa3`, or `flashinfer/triton` where prefill and decode differ."""
        return self.prefill if self.prefill == self.decode else f"{self.prefill}/{self.decode}"


@dataclass(frozen=True, slots=True)
class Graphs:
    """Requests of decode graphs, tokens of prefill graphs."""

    decode: tuple[int, ...]
    prefill: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Whether the server tunes, why, and what its cache's key is made of."""

    tunes: bool
    because: str
    key_parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Server:
    asked: Asked
    gpu: GpuModel
    parallel: ParallelConfig
    config_class: str
    dtype: str
    quantization: str | None  # the argument
    model_quantization: str | None  # how the weights are stored
    attending: Attending
    moe_runner_backend: str
    fp4_gemm_backend: str
    context_length: int
    chunked_prefill_size: int
    mem_fraction_static: float
    max_running_requests: int | None
    dummy_batch_rows: int
    graphs: Graphs
    speculative: Speculation | None
    tuning: Tuning
    draft: DraftServer | None
    states: StateRules
    head_over: HeadOver
    is_draft: bool = False

    @property
    def key_parts(self) -> tuple[str, ...]:
        return self.tuning.key_parts

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)

    @property
    def tunes(self) -> bool:
        return self.tuning.tunes

    @property
    def tunes_because(self) -> str:
        return self.tuning.because

    @property
    def backend(self) -> MoEBackendRow:
        return backend_row(self.moe_runner_backend)

    @property
    def moe_a2a_backend(self) -> str:
        return self.asked.moe_a2a_backend

    @property
    def attn_dp_size(self) -> int:
        return self.parallel.attn_dp

    @property
    def width(self) -> int:
        """Tokens that a decode step brings a request."""
        return self.speculative.draft_tokens if self.speculative else 1

    @property
    def is_pd_decode(self) -> bool:
        return self.asked.disaggregation_mode == "decode"

    @property
    def prefill_tokens(self) -> int:
        """The most that one rank prefills at once."""
        return self.chunked_prefill_size if self.chunked_prefill_size > 0 else self.asked.max_prefill_tokens

    @property
    def gathers_nvfp4(self) -> bool:
        """Rows are quantized before DP attention's ranks gather them: should_use_..._fp4_allgather of
        srt/layers/moe/utils.py, which drafts turn off."""
        by_cutlass = self.moe_runner_backend == "flashinfer_cutlass" and self.quantization == "modelopt_fp4"
        gathered = self.moe_a2a_backend == "none" and self.attn_dp_size > 1
        return by_cutlass and gathered and self.parallel.ep == self.attn_dp_size and not self.is_draft

    @property
    def runtime(self) -> RuntimeConfig:
        """What one rank of it goes by."""
        asked, attending = self.asked, self.attending
        return RuntimeConfig(
            dtype=self.dtype,
            quantization=self.quantization,
            kv_cache_dtype=_FULL_NAMES.get(attending.kv_cache_dtype, attending.kv_cache_dtype),
            page_size=attending.page_size,
            attention_backend=attending.decode,
            prefill_attention_backend=attending.prefill,
            packs_latents=attending.packs_latents,
            moe_runner_backend=self.moe_runner_backend,
            moe_a2a_backend=self.moe_a2a_backend,
            fp4_gemm_backend=self.fp4_gemm_backend,
            fp8_gemm_backend=asked.fp8_gemm_runner_backend,
            prefill_tokens=self.prefill_tokens,
            max_running_requests=self.max_running_requests,
            max_total_tokens=asked.max_total_tokens,
            sliding_share=0.8 if asked.swa_full_tokens_ratio is None else asked.swa_full_tokens_ratio,
            mem_fraction_static=self.mem_fraction_static,
            context_length=self.context_length,
            positions=self._positions,
            decode_graphs=self.graphs.decode,
            prefill_graphs=self.graphs.prefill,
            is_pd_decode=self.is_pd_decode,
            arriving=self._arriving,
            disable_autotune=not self.tunes,
            fuses_shared_experts=not asked.disable_shared_experts_fusion,
            whole_dense_mlps=asked.moe_dense_tp_size == 1,
            tells_dense_split=asked.moe_dense_tp_size is not None,
            gathers_nvfp4=self.gathers_nvfp4,
            disable_custom_all_reduce=asked.disable_custom_all_reduce,
            head_over=self.head_over,
            speculative=self._speculative_config,
            states=self.states,
            sm_major=self.gpu.major,
        )

    @property
    def _arriving(self) -> int | None:
        """Rows of a decode role for requests whose keys are on their way: pd_disaggregation_hook.py"""
        requests = self.asked.max_running_requests
        if not self.is_pd_decode or requests is None:
            return 0
        ranks = self.attn_dp_size if self.attn_dp_size > 1 else self.asked.dp_size
        return arriving_beside(share_of(requests, ranks))

    @property
    def _positions(self) -> int:
        """reserve_rope_cache_for_long_sequences of srt/utils/common.py"""
        one = self.speculative
        drafted = 0 if one is None else one.steps * one.draft_tokens
        return -(-(self.context_length + _SAFETY * drafted + _MARGIN) // _ALIGNED) * _ALIGNED

    @property
    def _speculative_config(self) -> SpeculativeConfig | None:
        one = self.speculative
        if one is None:
            return None
        plain = self.draft is not None and self.draft.quantization is None and self.quantization is not None
        return SpeculativeConfig(one.steps, one.topk, one.draft_tokens, one.is_counted, plain)

    def as_draft(self) -> Server:
        """The draft worker as a server of its own, on the same ranks."""
        assert self.draft is not None
        draft = self.draft
        return replace(
            self,
            quantization=draft.quantization,
            model_quantization=draft.quantization,
            moe_runner_backend=draft.moe_runner_backend,
            tuning=Tuning(draft.tunes, draft.tunes_because, draft.key_parts),
            is_draft=True,
            draft=None,
        )

    def to_json(self) -> dict[str, Any]:
        one, draft = self.speculative, self.draft
        return {
            "config_class": self.config_class,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "kv_cache_dtype": self.attending.kv_cache_dtype,
            "page_size": self.attending.page_size,
            "attention_backend": self.attending.backend,
            "moe_runner_backend": self.moe_runner_backend,
            "moe_a2a_backend": self.moe_a2a_backend,
            "ep_size": self.parallel.ep,
            "attn_dp_size": self.attn_dp_size,
            "context_length": self.context_length,
            "chunked_prefill_size": self.chunked_prefill_size,
            "mem_fraction_static": round(self.mem_fraction_static, 3),
            "max_running_requests": self.max_running_requests,
            "dummy_batch_rows": self.dummy_batch_rows,
            "decode_graphs": list(self.graphs.decode),
            "prefill_graphs": list(self.graphs.prefill),
            "speculative": [one.steps, one.topk, one.draft_tokens] if one else None,
            "tunes": self.tunes,
            "draft": {"key": draft.key, "tunes": draft.tunes} if draft else None,
        }
