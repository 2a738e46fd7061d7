"""What a server command asks for: arguments by SGLang's own names, as far as the core follows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from runtime.server.bounds import ASKED, check_flags


@dataclass(frozen=True, slots=True)
class Asked:
    """None, False and empty mean: not set. Values are those of the command line, not resolved ones."""

    model_path: str = ""
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    context_length: int | None = None
    page_size: int | None = None

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

    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    fp4_gemm_runner_backend: str = "auto"
    fp8_gemm_runner_backend: str = "auto"

    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int | None = None
    swa_full_tokens_ratio: float | None = None

    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: tuple[int, ...] | None = None
    disable_cuda_graph: bool = False
    disable_prefill_cuda_graph: bool = False

    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None

    disaggregation_mode: str = "null"
    disable_flashinfer_autotune: bool = False
    flashinfer_autotune_skip_ops: tuple[str, ...] = ()
    disable_radix_cache: bool = False
    disable_shared_experts_fusion: bool = False
    disable_custom_all_reduce: bool = False

    def __post_init__(self) -> None:
        check_flags(self, ASKED)

    def is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != _DEFAULTS[name])


_DEFAULTS = {one.name: one.default for one in fields(Asked)}
_RENAMED = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs", "cuda_graph_bs_decode": "cuda_graph_bs"}


def default_of(name: str) -> Any:
    """What an argument is when nobody sets it."""
    return _DEFAULTS[name]


def is_read(name: str) -> bool:
    """Whether the core follows this argument of SGLang's."""
    return _RENAMED.get(name, name) in _DEFAULTS


def changed(asked: Asked, given: Mapping[str, Any]) -> Asked:
    """With the arguments that a command line gave, as far as they are followed."""
    named: dict[str, Any] = {
        _RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if is_read(name)
    }
    return replace(asked, **named)
