"""Which attention kernels prefill and decode run on, and the pages that they ask for."""

from __future__ import annotations

from runtime.server.choices import Choices, Reason
from runtime.server.errors import ConfigError
from runtime.server.graph_backends import disable_graphs
from runtime.server.traits import is_mla

_UNCAPTURED = ("torch_native", "flex_attention")
_MLA_KV = ("fp8_e4m3", "bf16", "auto")


_OLD_NAMES = {"compressed": "dsv4"}
_NAMED_BY = (
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
    "speculative_draft_attention_backend",
)


def settle_old_names(c: Choices) -> None:
    """What a backend was called once: arg_groups/serving_hook.py."""
    if c.release.tokenspeed_is_cutedsl:
        _settle_tokenspeed(c)
    for name in _NAMED_BY:
        if getattr(c, name) in _OLD_NAMES:
            c.settle("the new name of this backend", **{name: _OLD_NAMES[getattr(c, name)]})


def _settle_tokenspeed(c: Choices) -> None:
    """It prefilled, too, and from an fp8 cache."""
    decodes = "tokenspeed_mla" in (c.attention_backend, c.decode_attention_backend)
    for name in _NAMED_BY:
        if getattr(c, name) == "tokenspeed_mla":
            prefills = name == "prefill_attention_backend"
            c.settle("what tokenspeed_mla became", **{name: "trtllm_mla" if prefills else "cutedsl_mla"})
    if decodes:
        c.settle("what tokenspeed_mla needed", kv_cache_dtype="fp8_e4m3")
        if c.speculative_algorithm is not None and c.speculative_attention_mode == "prefill":
            c.settle("what tokenspeed_mla did", speculative_attention_mode="decode")


def used_backends(c: Choices) -> tuple[str | None, str | None]:
    """Of prefill and decode."""
    both = c.attention_backend
    return c.prefill_attention_backend or both, c.decode_attention_backend or both


def settle_attention(c: Choices) -> None:
    prefill = c.prefill_attention_backend
    if prefill is not None and prefill == c.decode_attention_backend:
        c.settle("both phases' backend", attention_backend=prefill)
    elif c.attention_backend is None:
        found = default_backend(c)
        c.settle(found.rule, attention_backend=found.value)
    if c.attention_backend in _UNCAPTURED:
        disable_graphs(c, f"{c.attention_backend} is not captured")
    if c.attention_backend == "flex_attention" and c.speculative_algorithm is not None:
        raise ConfigError(
            "flex_attention does not speculate", tries=("attention_backend", "speculative_algorithm")
        )
    _settle_mla(c)
    _settle_mha(c)
    if c.attention_backend == "fa3" and c.kv_cache_dtype == "fp8_e5m2":
        c.settle("fa3 has no fp8_e5m2", attention_backend="triton")
    _settle_fa4(c)


def settle_page_size(c: Choices) -> None:
    if c.page_size is None:
        c.settle("the default", page_size=1)


def settle_tiered_decode(c: Choices) -> None:
    """fa3 does not decode from a cache that kernels move between host and GPU."""
    tiered = c.enable_hierarchical_cache or c.disaggregation_decode_enable_offload_kvcache
    by_kernel = c.hicache_io_backend == "kernel" and c.hicache_mem_layout != "page_first_direct"
    if not (c.release.moves_tiered_decode and tiered and by_kernel):
        return
    if c.decode_attention_backend is None and c.attention_backend == "fa3":
        flashinfer = c.gpu.major == 10 if is_mla(c) else not c.model.has_attention_sinks
        c.settle("a hierarchical cache", decode_attention_backend="flashinfer" if flashinfer else "triton")


def default_backend(c: Choices) -> Reason:
    major, arch = c.gpu.major, c.gpu.arch
    if c.model.architecture == "WhisperForConditionalGeneration":
        return Reason("flashinfer", "Whisper")
    if is_mla(c):
        return Reason({9: "fa3", 10: "flashinfer"}.get(major, "triton"), f"latent attention on {arch}")
    if major == 9 and _is_one_branch(c):
        return Reason("fa3", f"multi-head attention on {arch}")
    if major == 10 and _is_one_branch(c) and _branches_are_settled(c):
        if c.release.tells_wide_keys and c.model.has_wide_keys:
            return Reason("fa4", f"keys wider than values on {arch}")
        return Reason("trtllm_mha", f"multi-head attention on {arch}")
    if c.model.has_attention_sinks:
        return Reason("triton", "attention sinks")
    drafts = _draft_in_the_way(c) if major in (9, 10) else ""
    return Reason("flashinfer", drafts or f"multi-head attention on {arch}")


def _draft_in_the_way(c: Choices) -> str:
    """Of the kernels that this GPU would take."""
    return "a draft whose width is not settled yet" if _is_one_branch(c) else "a draft with branches or pages"


def _is_one_branch(c: Choices) -> bool:
    topk = c.speculative_eagle_topk
    return topk is None or (topk == 1 and c.page_size in (1, None))


def _branches_are_settled(c: Choices) -> bool:
    """Whether it is known by now how wide the draft branches."""
    if c.speculative_algorithm is None or c.speculative_eagle_topk is not None:
        return True
    return c.speculative_algorithm in c.release.one_branch_drafts


def _page(c: Choices, backend: str, page: int, others: tuple[int, ...] = ()) -> None:
    if c.page_size not in (page, *others):
        c.settle(f"the pages of {backend}", page_size=page)


def _settle_mla(c: Choices) -> None:
    named = (c.attention_backend, c.decode_attention_backend)
    if "flashmla" in named:
        _page(c, "flashmla", 64)
    if "cutlass_mla" in named and c.release.has_cutlass_mla:
        _page(c, "cutlass_mla", 128)
    if "trtllm_mla" in named:
        _check_trtllm_mla(c)
        _page(c, "trtllm_mla", 64, (32,))
    if "tokenspeed_mla" in named:
        _page(c, "tokenspeed_mla", 64, (32,))
    if "cutedsl_mla" in (*named, c.prefill_attention_backend):
        _page(c, "cutedsl_mla", 64, (32,))
        if c.prefill_attention_backend is None:
            c.settle("cutedsl_mla only decodes", prefill_attention_backend="trtllm_mla")


def _check_trtllm_mla(c: Choices) -> None:
    if c.gpu.major not in (10, 12):
        raise ConfigError(
            f"attention backend trtllm_mla does not run on {c.gpu.arch}: Blackwell only",
            tries=("attention_backend", "decode_attention_backend", "prefill_attention_backend"),
        )
    if c.kv_cache_dtype not in (*_MLA_KV, *c.release.more_trtllm_mla_kv):
        raise ConfigError(
            f"--kv-cache-dtype {c.kv_cache_dtype}: trtllm_mla has no such cache",
            tries=("kv_cache_dtype",),
        )


def _settle_mha(c: Choices) -> None:
    split = (c.prefill_attention_backend, c.decode_attention_backend)
    draft = (c.speculative_draft_attention_backend,) if c.release.drafts_ask_for_pages else ()
    if "trtllm_mha" in (c.attention_backend, *split, *draft):
        _page(c, "trtllm_mha", 64, c.release.trtllm_mha_pages)
    if c.release.has_hpc_ops and "hpc_ops" in (c.attention_backend, *split):
        _page(c, "hpc_ops", 64)
    prefill, decode = used_backends(c)
    if prefill == "trtllm_mha":
        _check_trtllm_prefill(c)
    if decode == "trtllm_mha" and c.gpu.major not in (9, 10, 12):
        raise ConfigError(
            f"attention backend trtllm_mha does not run on {c.gpu.arch}",
            tries=("attention_backend", "decode_attention_backend"),
        )


def _check_trtllm_prefill(c: Choices) -> None:
    if c.gpu.major not in c.release.trtllm_mha_prefill_majors:
        raise ConfigError(
            f"attention backend trtllm_mha does not prefill on {c.gpu.arch}",
            tries=("prefill_attention_backend", "attention_backend"),
        )
    if c.gpu.major == 12 and c.kv_cache_dtype == "fp8_e4m3":
        raise ConfigError(
            "attention backend trtllm_mha does not prefill with an fp8 cache on sm120",
            tries=("prefill_attention_backend", "attention_backend", "kv_cache_dtype"),
        )


def _settle_fa4(c: Choices) -> None:
    if c.gpu.major != 10 or is_mla(c):
        return
    named = (c.attention_backend, c.decode_attention_backend, c.prefill_attention_backend)
    if c.release.fa4_pages_by_prefill:
        paged = c.prefill_attention_backend == "fa4"
    else:
        paged = "fa4" in named and (c.speculative_eagle_topk or 0) <= 1
    if paged:
        _page(c, "fa4", 1 if c.model.architecture in c.release.blocks.in_single_tokens else 128)
