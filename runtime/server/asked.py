"""What a server command asks for: arguments by SGLang's own names, as far as a rule looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from runtime.server.bounds import ASKED, check_flags


@dataclass(frozen=True, slots=True)
class Asked:
    """None, False and empty mean: not set. Values are those of the command line, not resolved ones."""

    model_path: str = ""
    served_as: str | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    context_length: int | None = None
    page_size: int | None = None
    json_model_override_args: str = "{}"

    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    attn_dp_size: int | None = None
    ep_size: int = 1
    nnodes: int = 1
    node_rank: int = 0
    enable_dp_attention: bool = False
    enable_dp_lm_head: bool = False
    enable_tp_lm_head_all_to_all: bool | None = None
    moe_dense_tp_size: int | None = None
    attn_cp_size: int = 1
    moe_dp_size: int = 1
    dcp_size: int = 1
    dwdp_size: int = 1

    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    flashinfer_mxfp4_moe_precision: str = "default"
    flashinfer_a2a_dispatch_type: str | None = None
    deepep_mode: str = "auto"
    fp4_gemm_runner_backend: str = "auto"
    fp8_gemm_runner_backend: str = "auto"
    sampling_backend: str | None = None

    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int | None = None
    swa_full_tokens_ratio: float | None = None
    cpu_offload_gb: int = 0

    # Before 0.5.14 the first six, since then the others.
    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: tuple[int, ...] | None = None
    disable_piecewise_cuda_graph: bool = False
    enforce_piecewise_cuda_graph: bool = False
    piecewise_cuda_graph_max_tokens: int | None = None
    piecewise_cuda_graph_tokens: tuple[int, ...] | None = None
    disable_cuda_graph: bool = False
    disable_cuda_graph_padding: bool = False
    disable_prefill_cuda_graph: bool = False
    disable_decode_cuda_graph: bool = False
    cuda_graph_max_bs_decode: int | None = None
    cuda_graph_bs_decode: tuple[int, ...] | None = None
    cuda_graph_max_bs_prefill: int | None = None
    cuda_graph_bs_prefill: tuple[int, ...] | None = None
    cuda_graph_backend_decode: str | None = None
    cuda_graph_backend_prefill: str | None = None
    cuda_graph_config: Mapping[str, Any] | None = field(default=None, hash=False)

    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_draft_model_quantization: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_moe_runner_backend: str | None = None
    speculative_moe_a2a_backend: str | None = None
    speculative_attention_mode: str | None = None
    speculative_ngram_max_bfs_breadth: int = 10
    speculative_dflash_block_size: int | None = None
    speculative_dspark_block_size: int | None = None
    speculative_draft_attention_backend: str | None = None
    speculative_draft_kv_cache_dtype: str | None = None

    disaggregation_mode: str = "null"
    disaggregation_decode_enable_radix_cache: bool = False
    disaggregation_decode_extra_slots: int | None = None
    disable_flashinfer_autotune: bool = False
    flashinfer_autotune_skip_ops: tuple[str, ...] = ()
    enable_deterministic_inference: bool = False
    rl_on_policy_target: str | None = None
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    disable_shared_experts_fusion: bool = False
    disable_flashinfer_cutlass_moe_fp4_allgather: bool = False
    disable_custom_all_reduce: bool = False
    enforce_disable_flashinfer_allreduce_fusion: bool = False
    flashinfer_allreduce_fusion_backend: str | None = None
    enable_mixed_chunk: bool = False
    enable_two_batch_overlap: bool = False
    enable_single_batch_overlap: bool = False
    enable_torch_compile: bool = False
    enable_hierarchical_cache: bool = False
    disaggregation_decode_enable_offload_kvcache: bool = False
    hicache_io_backend: str = "kernel"
    hicache_mem_layout: str | None = None  # the release's own
    enable_multimodal: bool | None = None
    mm_enable_dp_encoder: bool | None = None
    mm_feature_transport: str | None = None
    keep_mm_feature_on_device: bool = False
    mm_preprocess_cache_size_mb: int | None = None
    enable_waterfill: bool = False
    enable_eplb: bool = False
    enable_lora: bool = False
    ep_num_redundant_experts: int = 0
    language_only: bool = False
    encoder_urls: tuple[str, ...] = ()
    language_model_only: bool = False
    linear_attn_backend: str = "triton"
    linear_attn_decode_backend: str | None = None
    mamba_ssm_dtype: str | None = None
    # The state cache's strategy: its name before 0.5.14, and since.
    mamba_scheduler_strategy: str = "auto"
    mamba_radix_cache_strategy: str = "auto"
    mamba_track_interval: int = 256
    max_mamba_cache_size: int | None = None
    mamba_full_memory_ratio: float | None = None
    lora_paths: tuple[str, ...] | None = None
    adapter_rank: int = 0  # what the files of these say, where all are read
    adapter_modules: tuple[str, ...] = ()
    load_format: str = "auto"
    dllm_algorithm: str | None = None
    is_embedding: bool = False
    debug_cuda_graph: bool = False
    enable_symm_mem: bool = False
    enable_mis: bool = False
    expert_distribution_recorder_mode: str | None = None
    debug_tensor_dump_output_folder: str | None = None
    msprobe_dump_config: str | None = None
    # Arguments that change nothing here, and that only checks look at: by their names in the release.
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_flags(self, ASKED)

    def is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != _DEFAULTS[name])


# What is no argument of a server: what stands in files that arguments name.
FROM_FILES = ("served_as", "adapter_rank", "adapter_modules")
_DEFAULTS = {one.name: one.default for one in fields(Asked)}
# Arguments that changed their name from one release to another.
_RENAMED = {
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "cuda_graph_bs_decode": "cuda_graph_bs",
    "enable_deepep_waterfill": "enable_waterfill",
}


def default_of(name: str) -> Any:
    """What an argument is when nobody sets it."""
    return _DEFAULTS[name]


def is_read(name: str) -> bool:
    """Whether any rule looks at this argument of SGLang's."""
    return _RENAMED.get(name, name) in _DEFAULTS and name != "others"


def spellings(name: str) -> tuple[str, ...]:
    """What releases call this argument."""
    return (name, *(new for new, old in _RENAMED.items() if old == name))


def changed(asked: Asked, given: Mapping[str, Any]) -> Asked:
    """With the arguments that a command line gave."""
    named = {_RENAMED.get(name, name): value for name, value in given.items() if is_read(name)}
    others = {name: value for name, value in given.items() if not is_read(name)}
    plain: dict[str, Any] = {}
    for name, value in named.items():
        plain[name] = tuple(value) if isinstance(value, list) else value
    return replace(asked, others={**asked.others, **others}, **plain)
