"""One pool for every kind of layer. srt/arg_groups/kv_cache_hook.py, handle_unified_memory_pool and
handle_page_major_kv_layout (before, in srt/server_args.py)."""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.checks.row import Refusal, apart, under
from runtime.server.choices import Choices
from runtime.server.traits import is_disaggregated, is_hybrid, is_hybrid_swa, is_mla

_TRITON = frozenset({"triton"})
_MHA = _TRITON | {"fa3", "fa4", "flashinfer", "trtllm_mha"}
_FIRST_MLA = _TRITON | {"fa3", "trtllm_mla", "flashinfer", "cutedsl_mla", "tokenspeed_mla"}
_MLA = _FIRST_MLA | {"flashmla"}
_ASYMMETRIC = _TRITON | {"fa3", "fa4"}
_FIRST_DRAFTED = _TRITON | {"flashinfer", "fa3"}
_DRAFTED = _FIRST_DRAFTED | {"trtllm_mha"}
_VERIFIED = _TRITON | {"trtllm_mla", "cutedsl_mla", "flashmla", "flashinfer", "fa3"}
_SHARED = frozenset({"flashinfer", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla"})
_DECODES, _PREFILLS, _DELTA = {"triton", "flashinfer"}, {"triton", "flashkda"}, {"cutedsl", "helion"}
_WAY = "--attention-backend triton"
_ELSEWHERE = "[enable_unified_memory] does not run on these attention backends"
_LINEAR = "[enable_unified_memory] does not run on this backend of linear attention"


def _backends(c: Choices) -> set[str | None]:
    return set(used_backends(c)) - {None}


def _decode(c: Choices) -> str | None:
    named: str | None = c.linear_attn_decode_backend or c.linear_attn_backend
    return named


def _prefill(c: Choices) -> str | None:
    named: str | None = c.linear_attn_prefill_backend or c.linear_attn_backend
    return named


def _linear(c: Choices, decodes: set[str], prefills: set[str]) -> bool:
    """On a kernel that does not read strided states; that of delta attention does, in MLA models."""
    more = _DELTA if is_mla(c) else set()
    return _decode(c) not in (*decodes, *more, None) or _prefill(c) not in (*prefills, *more, None)


def _runs_dense(c: Choices) -> bool:
    return is_mla(c) and bool(c.enable_unified_memory)


def _drafts_apart(c: Choices, known: frozenset[str]) -> bool:
    draft = c.speculative_draft_attention_backend
    return not ({draft} if draft else _backends(c)) <= known


_PAGES = (
    Refusal(
        lambda c: not c.enable_unified_memory,
        "[enable_page_major_kv_layout] needs --enable-unified-memory",
        since=(0, 5, 19),
    ),
    Refusal(
        lambda c: c.model.has_wide_keys and not is_mla(c),
        "[enable_unified_memory] needs keys as wide as values",
        since=(0, 5, 19),
        until=(0, 5, 23),
    ),
    Refusal(lambda c: not _backends(c) <= _TRITON, _ELSEWHERE, _WAY, until=(0, 5, 17)),
    Refusal(
        lambda c: not _backends(c) <= (_FIRST_MLA if _runs_dense(c) else _TRITON),
        _ELSEWHERE,
        _WAY,
        until=(0, 5, 19),
    ),
    Refusal(
        lambda c: not _backends(c) <= (_MLA if is_mla(c) else _MHA),
        _ELSEWHERE,
        _WAY,
    ),
    Refusal(
        lambda c: c.model.has_wide_keys and not is_mla(c) and not _backends(c) <= _ASYMMETRIC,
        _ELSEWHERE,
        _WAY,
    ),
    Refusal(
        lambda c: {_decode(c), _prefill(c), c.linear_attn_backend} - {None, "triton"},
        _LINEAR,
        until=(0, 5, 17),
    ),
    Refusal(lambda c: _linear(c, _DECODES, _PREFILLS), _LINEAR, until=(0, 5, 23)),
    Refusal(
        lambda c: _linear(c, _DECODES, _PREFILLS | _DECODES),
        _LINEAR,
    ),
    Refusal(lambda c: c.mamba_backend not in (None, "triton"), "[mamba_backend]: pages want triton"),
)
_PD = (
    Refusal(lambda c: True, "[enable_unified_memory] with [disaggregation_mode]", until=(0, 5, 18)),
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in ("mooncake", "mooncake_tcp"),
        "[enable_unified_memory] does not go with [disaggregation_transfer_backend]",
    ),
    Refusal(lambda c: c.pp_size != 1, "[enable_unified_memory] and [disaggregation_mode] with [pp_size]"),
    Refusal(
        lambda c: (
            c.disaggregation_transfer_backend in ("mooncake", "mooncake_tcp")
            and c.speculative_algorithm is not None
        ),
        "[enable_unified_memory] over mooncake does not go with [speculative_algorithm]",
        since=(0, 5, 21),
    ),
    apart("enable_unified_memory", "enable_hisparse"),
    Refusal(
        lambda c: (
            c.disaggregation_decode_enable_offload_kvcache
            and (c.hicache_storage_backend != "file" or is_mla(c) or is_hybrid(c) or is_hybrid_swa(c))
        ),
        "[enable_unified_memory] with [disaggregation_decode_enable_offload_kvcache]",
        since=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.disaggregation_decode_retraction_backup == "host_pool" and is_hybrid(c),
        "[enable_unified_memory] with [disaggregation_decode_retraction_backup]",
        since=(0, 5, 21),
    ),
)
_EAGLE = (
    Refusal(
        lambda c: not (is_hybrid_swa(c) or is_hybrid(c)),
        "[enable_unified_memory] drafts for models of mixed layers only",
    ),
    Refusal(
        lambda c: not _backends(c) <= (_VERIFIED | {"tokenspeed_mla"} if is_mla(c) else _FIRST_DRAFTED),
        "[enable_unified_memory] does not draft on these attention backends",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: not _backends(c) <= (_VERIFIED if is_mla(c) else _DRAFTED),
        "[enable_unified_memory] does not draft on these attention backends",
        since=(0, 5, 23),
    ),
    Refusal(
        lambda c: _drafts_apart(c, _FIRST_DRAFTED),
        "[enable_unified_memory] does not draft on this backend",
        until=(0, 5, 23),
    ),
    Refusal(lambda c: _drafts_apart(c, _DRAFTED), "[enable_unified_memory] does not draft on this backend"),
    Refusal(
        lambda c: c.disaggregation_decode_retraction_backup == "host_pool",
        "[enable_unified_memory] drafts not with [disaggregation_decode_retraction_backup]",
    ),
    Refusal(
        lambda c: c.enable_hierarchical_cache,
        "[enable_unified_memory] drafts not with [enable_hierarchical_cache]",
    ),
)
_UNIFIED = (
    *under(is_disaggregated, _PD),
    Refusal(
        lambda c: c.speculative_algorithm is not None,
        "[enable_unified_memory] does not go with [speculative_algorithm]",
        until=(0, 5, 18),
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "DSPARK"),
        "[enable_unified_memory] does not go with [speculative_algorithm]",
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "DSPARK", "EAGLE", "EAGLE3", "DFLASH"),
        "[enable_unified_memory] does not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: c.speculative_eagle_topk not in (None, 1),
        "[enable_unified_memory] does not go with [speculative_eagle_topk]",
        since=(0, 5, 22),
    ),
    *under(lambda c: c.speculative_algorithm in ("EAGLE", "EAGLE3"), _EAGLE),
    Refusal(
        lambda c: c.enable_two_batch_overlap,
        "[enable_unified_memory] does not go with [enable_two_batch_overlap]",
        since=(0, 5, 20),
    ),
    Refusal(
        lambda c: c.enable_hierarchical_cache or c.enable_lmcache,
        "[enable_unified_memory] does not go with a cache on the host",
        until=(0, 5, 21),
    ),
    apart("enable_unified_memory", "enable_lmcache"),
    apart("enable_unified_memory", "enable_unified_cache_external_linker", since=(0, 5, 22)),
    Refusal(lambda c: c.dcp_size != 1, "[enable_unified_memory] with [dcp_size]", until=(0, 5, 20)),
    Refusal(
        lambda c: c.dcp_size > 1 and (not is_mla(c) or is_hybrid_swa(c) or is_disaggregated(c)),
        "[enable_unified_memory] with [dcp_size] is for MLA models that do not disaggregate",
    ),
    Refusal(
        lambda c: c.dcp_size > 1 and not _backends(c) <= _SHARED,
        "[enable_unified_memory] with [dcp_size] does not run on these attention backends",
    ),
    Refusal(
        lambda c: c.prefill.backend == "tc_piecewise",
        "[enable_unified_memory] does not go with compiled prefill graphs",
        "--cuda-graph-backend-prefill disabled",
        until=(0, 5, 19),
    ),
    Refusal(
        lambda c: c.prefill.is_on and c.cuda_graph_backend_prefill is not None,
        "[enable_unified_memory] does not go with [cuda_graph_backend_prefill]",
        until=(0, 5, 20),
    ),
    Refusal(
        lambda c: c.decode.is_on and used_backends(c)[1] == "trtllm_mha",
        "[enable_unified_memory] captures no decode on trtllm_mha",
        "another --decode-attention-backend, or --disable-cuda-graph",
        since=(0, 5, 22),
        until=(0, 5, 23),
    ),
)

ROWS = (
    *under(lambda c: c.enable_page_major_kv_layout or c.enable_unified_memory, _PAGES),
    *under(lambda c: c.enable_unified_memory, _UNIFIED),
)
