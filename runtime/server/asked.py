"""The arguments of a server command that the core follows, under SGLang's own names."""

from dataclasses import dataclass

from runtime.server.bounds import ASKED, check_flags


@dataclass(frozen=True, kw_only=True)
class OfRanks:
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    attn_dp_size: int | None = None
    ep_size: int = 1
    nnodes: int = 1
    node_rank: int = 0
    enable_dp_attention: bool = False
    enable_dp_lm_head: bool = False
    moe_dense_tp_size: int | None = None
    disaggregation_mode: str = "null"


@dataclass(frozen=True, kw_only=True)
class OfKernels:
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    fp4_gemm_runner_backend: str = "auto"
    fp8_gemm_runner_backend: str = "auto"
    disable_flashinfer_autotune: bool = False
    flashinfer_autotune_skip_ops: tuple[str, ...] = ()
    disable_shared_experts_fusion: bool = False
    disable_custom_all_reduce: bool = False


@dataclass(frozen=True, kw_only=True)
class OfMemory:
    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int | None = None
    swa_full_tokens_ratio: float | None = None
    disable_radix_cache: bool = False
    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: tuple[int, ...] | None = None
    disable_cuda_graph: bool = False
    disable_prefill_cuda_graph: bool = False


@dataclass(frozen=True, kw_only=True)
class OfDrafts:
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class OfModel:
    model_path: str = ""
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    context_length: int | None = None
    page_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Asked(OfDrafts, OfMemory, OfKernels, OfRanks, OfModel):
    """The arguments as given, not resolved. None, False and empty mean that the flag was not set."""

    def __post_init__(self) -> None:
        check_flags(self, ASKED)
