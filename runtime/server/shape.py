"""One server: what was asked, what it became and why. Everything that plans, tunes or predicts reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.server.adapters import adapters_of
from runtime.server.asked import Asked
from runtime.server.attention_buffers import Workspaces
from runtime.server.backends import MoEBackendRow, backend_row
from runtime.server.cache_key import cache_key
from runtime.server.choices import Reason
from runtime.server.config import RuntimeConfig
from runtime.server.deepep import DeepEP
from runtime.server.encoders.place import EncoderPlace
from runtime.server.expert_places import placement_of
from runtime.server.gpus import GpuModel
from runtime.server.host_cache import HostCache, host_cache_of
from runtime.server.offload_budget import budget_of
from runtime.server.parallel_config import HeadOver, ParallelConfig
from runtime.server.positions import positions_reached
from runtime.server.recurrent import StateRules
from runtime.server.releases import Release
from runtime.server.requests import arriving_beside, share_of
from runtime.server.sparse_kernels import SparseKernels
from runtime.server.speculative_config import SpeculativeConfig

_EAGLES = ("EAGLE", "EAGLE3", "FROZEN_KV_MTP")
_FULL_NAMES = {"bf16": "bfloat16"}
_TUNING_PREFILLS = ("Glm5NextConfig",)


@dataclass(frozen=True, slots=True)
class Speculation:
    algorithm: str
    steps: int | None  # unset where a draft makes no steps: then SGLang counts one
    topk: int | None
    draft_tokens: int
    is_counted: bool  # its layers' keys and values, when the pool is sized


@dataclass(frozen=True, slots=True)
class DraftServer:
    """The draft worker: a model of its own, with a cache of its own, on the target's ranks."""

    model_path: str
    architecture: str
    config_class: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    moe_runner_backend: str
    tunes: bool
    tunes_because: str
    key_parts: tuple[str, ...]

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)


@dataclass(frozen=True, slots=True)
class Server:
    """`reasons` are the rules, in their order, behind each value that nobody asked for in so many words: of
    the fields here, and of other arguments that a rule changed."""

    asked: Asked
    release: Release
    gpu: GpuModel
    config_class: str
    dtype: str
    quantization: str | None
    model_quantization: str | None
    kv_cache_dtype: str
    page_size: int
    sliding_share: float
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
    prefill_buffer: int
    mem_fraction_static: float
    max_running_requests: int | None
    dummy_batch_rows: int
    embeds: bool  # it answers a prompt with one row, and generates nothing
    keeps_nothing: bool  # of a token, in its cache
    decode_graphs: tuple[int, ...]
    prefill_graphs: tuple[int, ...]
    prefill_graphs_asked: bool
    whole_prefills: bool
    speculative: Speculation | None
    disaggregation_mode: str
    autotune_extend: bool
    fused_finalize: bool
    tunes: bool
    tunes_because: str
    key_parts: tuple[str, ...]
    draft: DraftServer | None
    fuses_all_reduce: bool  # with norms, by FlashInfer
    encoder: EncoderPlace  # where a multimodal model's lies
    fp4_gemm_backend: str
    fp8_gemm_backend: str
    compiles_prefills: bool  # their CUDA graphs are pieces of torch.compile
    dispatch_tokens: int | None  # a rank's in FlashInfer's all-to-all, where the environment says
    deepep: DeepEP | None
    states: StateRules
    head_over: HeadOver
    workspaces: Workspaces
    sparse_kernels: SparseKernels | None
    images_mib: int  # that its pool leaves free for images
    image_transport: str
    reasons: Mapping[str, tuple[Reason, ...]] = field(compare=False)
    is_draft: bool = False

    @property
    def key(self) -> str:
        return cache_key(self.key_parts)

    @property
    def why(self) -> dict[str, str]:
        """Each value's last rule; of one that several rules changed, what the others had made of it."""
        return {name: _in_words(reasons) for name, reasons in self.reasons.items()}

    @property
    def backend(self) -> MoEBackendRow:
        return backend_row(self.moe_runner_backend)

    @property
    def width(self) -> int:
        """Tokens that a decode step brings a request."""
        return self.speculative.draft_tokens if self.speculative else 1

    @property
    def is_pd_decode(self) -> bool:
        return self.disaggregation_mode == "decode"

    @property
    def _arriving(self) -> int | None:
        """srt/arg_groups/pd_disaggregation_hook.py, which does not know yet how many drafts let run; before
        in model_runner_kv_cache_mixin.py."""
        if not self.is_pd_decode:
            return 0
        told, requests = self.asked.disaggregation_decode_extra_slots, self.asked.max_running_requests
        if told is not None or not self.release.tells_arriving:
            return told
        ranks = self.attn_dp_size if self.attn_dp_size > 1 else self.dp_size
        return 0 if requests is None else arriving_beside(share_of(requests, ranks, self.release))

    @property
    def prefill_tokens(self) -> int:
        """The most that one rank prefills at once."""
        return self.chunked_prefill_size if self.chunked_prefill_size > 0 else self.max_prefill_tokens

    @property
    def gathers_nvfp4(self) -> bool:
        """Rows are quantized before DP attention's ranks gather them: should_use_..._fp4_allgather of
        srt/layers/moe/utils.py, which drafts turn off."""
        by_cutlass = self.moe_runner_backend == "flashinfer_cutlass" and self.quantization == "modelopt_fp4"
        turned_off = self.asked.disable_flashinfer_cutlass_moe_fp4_allgather or self.is_draft
        gathered = self.moe_a2a_backend == "none" and self.attn_dp_size > 1
        return by_cutlass and gathered and self.ep_size == self.attn_dp_size and not turned_off

    @property
    def weights_quantization(self) -> str | None:
        """How the weights are stored: the argument `quantization` may be empty where they are quantized."""
        return self.model_quantization

    @property
    def parallel(self) -> ParallelConfig:
        attention = self.attn_dp_size > 1
        return ParallelConfig(
            tp=self.tp_size,
            pp=self.pp_size,
            dp=self.attn_dp_size if attention else self.dp_size,
            ep=self.ep_size,
            enable_dp_attention=attention,
            nnodes=self.asked.nnodes,
            node_rank=self.asked.node_rank,
        )

    @property
    def runtime(self) -> RuntimeConfig:
        """What one rank of it goes by."""
        return RuntimeConfig(
            dtype=self.dtype,
            quantization=self.quantization,
            kv_cache_dtype=_FULL_NAMES.get(self.kv_cache_dtype, self.kv_cache_dtype),
            page_size=self.page_size,
            attention_backend=self.decode_attention_backend,
            prefill_attention_backend=self.prefill_attention_backend,
            workspaces=self.workspaces,
            moe_runner_backend=self.moe_runner_backend,
            moe_a2a_backend=self.moe_a2a_backend,
            fp4_gemm_backend=self.fp4_gemm_backend,
            fp8_gemm_backend=self.fp8_gemm_backend,
            deepep=self.deepep,
            adapters=None if self.is_draft else adapters_of(self.asked, self.moe_runner_backend),
            host_cache=self._host_cache,
            offloaded=self._offloaded,
            placement=placement_of(self.asked, self.release, self.moe_a2a_backend, self.deepep),
            prefill_tokens=self.prefill_tokens,
            prefill_buffer=self.prefill_buffer,
            max_running_requests=self.max_running_requests,
            max_total_tokens=self.asked.max_total_tokens,
            sliding_share=self.sliding_share,
            mem_fraction_static=self.mem_fraction_static,
            images_mib=self.images_mib,
            context_length=self.context_length,
            positions=self._positions,
            embeds=self.embeds,
            keeps_nothing=self.keeps_nothing,
            packs_latents=self.sparse_kernels is None or self.sparse_kernels.packs,
            decode_graphs=self.decode_graphs,
            prefill_graphs=self._kept_prefill_graphs,
            prefill_graphs_asked=self.prefill_graphs_asked,
            whole_prefills=self.whole_prefills,
            is_pd_decode=self.is_pd_decode,
            arriving=self._arriving,
            disable_autotune=not self.tunes,
            autotune_extend=self.tunes_prefills,
            fused_finalize=self.fused_finalize,
            fuses_shared_experts=not self.asked.disable_shared_experts_fusion,
            whole_dense_mlps=self.asked.moe_dense_tp_size == 1,
            gathers_nvfp4=self.gathers_nvfp4,
            two_batches=self.asked.enable_two_batch_overlap,
            tells_dense_split=self.asked.moe_dense_tp_size is not None,
            disable_custom_all_reduce=self.asked.disable_custom_all_reduce,
            head_over=self.head_over,
            random_weights=self.asked.load_format == "dummy",
            speculative=self._speculative_config,
            states=self.states,
            sm_major=self.gpu.major,
            served_by=self.moe_runner_backend,
            sglang_version=self.release.version,
        )

    @property
    def _host_cache(self) -> HostCache | None:
        """Not of one whose rules give its prefixes up."""
        gives_up = self.is_draft or self.embeds or "disable_radix_cache" in self.reasons
        return None if gives_up else host_cache_of(self.asked, self.release)

    @property
    def _offloaded(self) -> int:
        compiles = self.compiles_prefills and bool(self._kept_prefill_graphs)
        return 0 if self.is_draft else budget_of(self.asked, compiles)

    @property
    def tunes_prefills(self) -> bool:
        """Asked to, or by itself: wants_prefill_autotune of srt/models/glm5_next.py."""
        if self.autotune_extend or self.is_draft or self.config_class not in _TUNING_PREFILLS:
            return self.autotune_extend
        by_trtllm = self.backend.calls == "trtllm" and self.moe_a2a_backend == "none"
        return by_trtllm and not self.parallel.enable_dp_attention

    @property
    def _positions(self) -> int:
        one = self.speculative
        drafted = 0 if one is None else (one.steps or 0) * one.draft_tokens
        return positions_reached(self.context_length, drafted)

    @property
    def _speculative_config(self) -> SpeculativeConfig | None:
        if self.speculative is None:
            return None
        one, kept = self.speculative, None
        if self.draft is not None and self.asked.speculative_draft_kv_cache_dtype is not None:
            kept = _FULL_NAMES.get(self.draft.kv_cache_dtype, self.draft.kv_cache_dtype)
        return SpeculativeConfig(
            one.algorithm,
            one.steps or 1,
            one.topk or 1,
            one.draft_tokens,
            is_counted=one.is_counted,
            kv_cache_dtype=kept,
            plain=self.draft is not None
            and self.draft.quantization is None
            and self.quantization is not None,
            steps_by=self.drafting_backends[0],
            catches_up_by=self.drafting_backends[1],
            without_overlap=self._drafts_without_overlap,
        )

    @property
    def drafting_backends(self) -> tuple[str, str]:
        """Of a draft's steps, and of its catching up: srt/speculative/draft_utils.py."""
        own = self.asked.speculative_draft_attention_backend
        decode, prefill = self.decode_attention_backend, self.prefill_attention_backend
        by_decodes = self.asked.speculative_attention_mode == "decode"
        return own or decode, own or (decode if by_decodes else prefill)

    @property
    def _drafts_without_overlap(self) -> bool:
        """By a worker that there was once: srt/speculative/eagle_worker.py."""
        one = self.speculative
        is_tree = one is not None and (one.topk or 1) > 1
        return self.release.drafts_without_overlap and (is_tree or self.asked.disable_overlap_schedule)

    @property
    def _kept_prefill_graphs(self) -> tuple[int, ...]:
        """EAGLE's target has none but in pieces: capture_prefill_graph of srt/model_executor."""
        one, kept = self.speculative, self.release.eagle_keeps_prefill_graphs
        if one is None or one.algorithm not in _EAGLES or self.is_draft or kept == "all":
            return self.prefill_graphs
        given_up = self.compiles_prefills or (self.whole_prefills and kept == "in pieces")
        return () if given_up else self.prefill_graphs

    def as_draft(self) -> Server:
        """The draft worker as a server of its own, on the same ranks."""
        assert self.draft is not None
        return replace(
            self,
            config_class=self.draft.config_class,
            dtype=self.draft.dtype,
            quantization=self.draft.quantization,
            model_quantization=self.draft.quantization,
            kv_cache_dtype=self.draft.kv_cache_dtype,
            moe_runner_backend=self.draft.moe_runner_backend,
            moe_a2a_backend=self.asked.speculative_moe_a2a_backend or self.moe_a2a_backend,
            tunes=self.draft.tunes,
            key_parts=self.draft.key_parts,
            is_draft=True,
            draft=None,
        )

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
            "mem_fraction_static": round(self.mem_fraction_static, 3),
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


def _in_words(reasons: tuple[Reason, ...]) -> str:
    *before, last = reasons
    return "; ".join([*(f"{reason.rule}: {reason.value}" for reason in before), last.rule])
