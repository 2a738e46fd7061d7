"""KV caches whose pages are spread over ranks, and activations that are. srt/arg_groups/kv_shard_hook.py,
layernorm_sp_hook.py."""

from __future__ import annotations

from runtime.server.architectures import MUSE_SPARK
from runtime.server.attention import used_backends
from runtime.server.checks.row import Refusal, apart, needs, under
from runtime.server.choices import Choices
from runtime.server.traits import has_dp_attention, is_mla, is_sparse

_SPREADS = frozenset({"Qwen3ForCausalLM", MUSE_SPARK})
_EXCLUDED = (
    *("dllm_algorithm", "radix_cache_backend", "enable_unified_cache_external_linker"),
    *("enable_streaming_session", "enable_session_radix_cache", "enable_flexkv", "enable_unified_memory"),
    *("enable_hisparse", "enable_two_batch_overlap"),
)
_GLM = "GlmMoeDsaForCausalLM"


def _prefill(c: Choices) -> str | None:
    return used_backends(c)[0]


def _drafts_otherwise(c: Choices) -> bool:
    fits = c.speculative_algorithm == "EAGLE" and c.model.architecture == _GLM
    return c.speculative_algorithm is not None and not (
        fits and c.speculative_eagle_topk == 1 and not c.enable_multi_layer_eagle
    )


def _sparse_otherwise(c: Choices) -> bool:
    context = c.enable_prefill_cp and c.attn_cp_size > 1 and c.cp_strategy == "interleave"
    kernels = c.dsa_prefill_backend == "trtllm" and c.dsa_decode_backend == "trtllm"
    cache = c.kv_cache_dtype == "fp8_e4m3" and c.page_size == 64
    moves = c.disaggregation_transfer_backend in ("mooncake", "mooncake_tcp")
    alone = c.pp_size == 1 and not c.enable_dsa_cache_layer_split
    return not (context and kernels and cache and moves and alone)


_SHARDED = (
    Refusal(
        lambda c: c.disaggregation_mode != "prefill",
        "[enable_kv_cache_sharding] is for a server that prefills",
        "--disaggregation-mode prefill",
    ),
    Refusal(
        lambda c: c.speculative_algorithm is not None,
        "[enable_kv_cache_sharding] does not go with [speculative_algorithm]",
        until=(0, 5, 23),
    ),
    Refusal(
        _drafts_otherwise,
        "[enable_kv_cache_sharding] does not go with [speculative_algorithm]",
    ),
    *(apart("enable_kv_cache_sharding", other) for other in _EXCLUDED),
    Refusal(lambda c: c.dcp_size > 1, "[enable_kv_cache_sharding] does not go with [dcp_size]"),
    apart("enable_kv_cache_sharding", "enable_hierarchical_cache", until=(0, 5, 23)),
    Refusal(
        lambda c: c.enable_hierarchical_cache and c.hicache_storage_backend is not None,
        "[enable_kv_cache_sharding] does not go with [hicache_storage_backend]",
    ),
    Refusal(
        lambda c: c.enable_dynamic_chunking and c.pp_size > 1,
        "[enable_kv_cache_sharding] and [enable_dynamic_chunking] with [pp_size]",
    ),
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in ("mooncake", "mooncake_tcp", "nixl"),
        "[enable_kv_cache_sharding] does not go with [disaggregation_transfer_backend]",
    ),
    Refusal(is_sparse, "[enable_kv_cache_sharding] is not for sparse attention", until=(0, 5, 23)),
    Refusal(
        lambda c: is_sparse(c) and _sparse_otherwise(c),
        "[enable_kv_cache_sharding] wants sparse attention on trtllm, interleaved, in an fp8 cache",
    ),
    Refusal(
        lambda c: is_mla(c) and c.attn_cp_size <= 1 and (has_dp_attention(c) or c.tp_size <= 1),
        "[enable_kv_cache_sharding] of MLA needs more than one rank, and no DP attention",
    ),
    Refusal(
        lambda c: not is_mla(c) and (not c.enable_prefill_cp or c.attn_cp_size <= 1),
        "[enable_kv_cache_sharding] needs --enable-prefill-cp and --attn-cp-size above 1",
    ),
    Refusal(lambda c: c.page_size <= 1, "[enable_kv_cache_sharding] needs pages", "--page-size 64"),
    Refusal(lambda c: c.chunked_prefill_size <= 0, "[enable_kv_cache_sharding] needs --chunked-prefill-size"),
    Refusal(
        lambda c: (
            not is_sparse(c)
            and _prefill(c) != "fa3"
            and not (
                _prefill(c) == "trtllm_mla"
                and is_mla(c)
                and c.attn_cp_size <= 1
                and not c.disable_chunked_prefix_cache
            )
        ),
        "[enable_kv_cache_sharding] needs prefills on attention backend fa3, or MLA on trtllm_mla",
    ),
)
_SPREAD = (
    Refusal(lambda c: c.model.architecture not in _SPREADS, "[enable_layernorm_sp] does not run this model"),
    Refusal(lambda c: c.tp_size <= 1, "[enable_layernorm_sp] needs more than one rank"),
    Refusal(has_dp_attention, "[enable_layernorm_sp] does not go with DP attention"),
    Refusal(
        lambda c: (
            c.speculative_algorithm is not None
            and not (c.model.architecture == MUSE_SPARK and c.speculative_algorithm == "DFLASH")
        ),
        "[enable_layernorm_sp] does not go with [speculative_algorithm]",
    ),
    Refusal(lambda c: c.pp_size > 1, "[enable_layernorm_sp] does not go with [pp_size]", since=(0, 5, 22)),
)

ROWS = (
    *under(lambda c: c.enable_kv_cache_sharding, _SHARDED),
    needs("enable_megamoe_for_layernorm_sp", "enable_layernorm_sp"),
    Refusal(
        lambda c: c.enable_megamoe_for_layernorm_sp and c.model.architecture != MUSE_SPARK,
        "[enable_megamoe_for_layernorm_sp] is for Muse Spark only",
    ),
    *under(lambda c: c.enable_layernorm_sp, _SPREAD),
)
