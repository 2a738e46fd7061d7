"""KV caches, their tiers and policies. srt/arg_groups/kv_cache_hook.py, hicache_hook.py, hisparse_hook.py."""

from __future__ import annotations

from typing import Any

from runtime.server.architectures import DEEPSEEK_V4, MINIMAX_M3
from runtime.server.attention import used_backends
from runtime.server.checks.row import Refusal, apart, at_least, needs, under
from runtime.server.choices import Choices, unset
from runtime.server.traits import has_dp_attention, is_disaggregated, is_mla, is_sparse

_HISPARSE_BACKENDS = {
    "bfloat16": {"flashmla_sparse"},
    "fp8_e4m3": {"flashmla_kv", "flashinfer_sparse_mla"},
}


def _tiers(c: Choices) -> bool:
    """Whether the host's part of a cache is set up."""
    backup = c.disaggregation_decode_retraction_backup in (None, "host_pool")
    receives = c.disaggregation_mode == "decode" and backup
    offloads = c.disaggregation_decode_enable_offload_kvcache
    return bool(c.enable_hierarchical_cache or offloads or receives)


def _tlru(c: Choices) -> tuple[Any, Any]:
    settings = c.radix_eviction_policy_config or {}
    return settings.get("threshold", 0), settings.get("next_prompt_estimate", 0)


def _receives_on_host(c: Choices) -> bool:
    name = "disaggregation_decode_host_receive_threshold"
    return bool(getattr(c, name) != unset(c.release, name))


_HOST_POOL = (
    Refusal(
        lambda c: c.disaggregation_mode != "decode",
        "[disaggregation_decode_retraction_backup] is for a server that decodes",
    ),
    Refusal(lambda c: c.dcp_size > 1, "[disaggregation_decode_retraction_backup] with [dcp_size]"),
    Refusal(
        lambda c: c.enable_priority_scheduling and not c.disable_priority_preemption,
        "[disaggregation_decode_retraction_backup] with [enable_priority_scheduling]",
        "--disable-priority-preemption",
    ),
)
_LMCACHE = (
    apart("enable_lmcache", "enable_hierarchical_cache"),
    apart("enable_lmcache", "enable_unified_cache_external_linker"),
    apart("enable_lmcache", "disable_radix_cache"),
    apart("enable_lmcache", "speculative_algorithm"),
    Refusal(has_dp_attention, "[enable_lmcache] does not go with DP attention"),
    Refusal(lambda c: c.dcp_size > 1, "[enable_lmcache] does not go with [dcp_size]"),
    apart("enable_lmcache", "enable_streaming_session"),
    Refusal(
        lambda c: c.hicache_host_memory_mode == "buffer_only",
        "[hicache_host_memory_mode] does not go with [enable_lmcache]",
    ),
    Refusal(is_disaggregated, "[enable_lmcache] does not go with [disaggregation_mode]"),
)
_OFFLOAD = (
    Refusal(
        lambda c: c.disaggregation_mode != "decode",
        "[disaggregation_decode_enable_offload_kvcache] is for a server that decodes",
        "--disaggregation-mode decode",
    ),
    needs("disaggregation_decode_enable_offload_kvcache", "hicache_storage_backend"),
    Refusal(
        lambda c: c.disaggregation_decode_retraction_backup == "host_pool",
        "[disaggregation_decode_enable_offload_kvcache] with [disaggregation_decode_retraction_backup]",
    ),
)
_LINKER = (
    Refusal(
        lambda c: c.disable_radix_cache or c.radix_cache_backend is not None,
        "[enable_unified_cache_external_linker] needs the radix cache that SGLang has by itself",
        since=(0, 5, 23),
    ),
    apart("enable_unified_cache_external_linker", "enable_hierarchical_cache"),
    apart("enable_unified_cache_external_linker", "hicache_storage_backend"),
)
_TIERS = (
    Refusal(
        lambda c: c.hicache_host_memory_mode == "buffer_only" and c.hicache_storage_backend is None,
        "[hicache_host_memory_mode] needs --hicache-storage-backend",
    ),
    Refusal(
        lambda c: c.hicache_host_memory_mode == "buffer_only" and c.disaggregation_mode == "decode",
        "[hicache_host_memory_mode] does not go with [disaggregation_mode]",
    ),
    Refusal(
        lambda c: c.hicache_host_memory_mode == "buffer_only" and c.hicache_write_policy == "write_back",
        "[hicache_host_memory_mode] does not go with [hicache_write_policy]",
        until=(0, 5, 22),
    ),
)
_TIERED_CONTEXT = (
    Refusal(
        lambda c: c.hicache_storage_backend is not None,
        "[dcp_size] does not go with [hicache_storage_backend]",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: c.hicache_storage_backend is not None and c.hicache_host_memory_mode == "buffer_only",
        "[dcp_size] does not go with [hicache_host_memory_mode]",
    ),
    Refusal(
        lambda c: c.speculative_algorithm is not None,
        "[enable_hierarchical_cache] and [dcp_size] do not go with [speculative_algorithm]",
        until=(0, 5, 18),
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "DSPARK"),
        "[enable_hierarchical_cache] and [dcp_size] do not go with [speculative_algorithm]",
    ),
    Refusal(lambda c: c.enable_lmcache, "[dcp_size] does not go with [enable_lmcache]"),
    Refusal(lambda c: c.enable_hisparse, "[dcp_size] does not go with [enable_hisparse]"),
    Refusal(lambda c: not is_mla(c), "[enable_hierarchical_cache] with [dcp_size] is for MLA models only"),
)
_HISPARSE = (
    Refusal(
        lambda c: not is_sparse(c) and c.model.architecture not in DEEPSEEK_V4,
        "[enable_hisparse] is for models with sparse attention",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: not is_sparse(c) and c.model.architecture not in DEEPSEEK_V4 | MINIMAX_M3,
        "[enable_hisparse] is for models with sparse attention",
    ),
    Refusal(lambda c: not c.disable_radix_cache, "[enable_hisparse] needs --disable-radix-cache"),
    apart("enable_hisparse", "enable_mixed_chunk", since=(0, 5, 22)),
    Refusal(
        lambda c: c.speculative_algorithm is not None and (c.speculative_eagle_topk or 1) != 1,
        "[enable_hisparse] does not go with [speculative_eagle_topk]",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.speculative_algorithm is not None and c.speculative_adaptive,
        "[enable_hisparse] does not go with [speculative_adaptive]",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: is_sparse(c) and c.kv_cache_dtype not in _HISPARSE_BACKENDS,
        "[enable_hisparse] does not go with [kv_cache_dtype]",
        "--kv-cache-dtype bfloat16 or fp8_e4m3",
    ),
    Refusal(
        lambda c: is_sparse(c) and any(
            backend is not None and backend not in _HISPARSE_BACKENDS[c.kv_cache_dtype]
            for backend in (c.dsa_prefill_backend, c.dsa_decode_backend)
        ),
        "[enable_hisparse] does not run on the sparse backends that were asked for",
    ),
)  # fmt: skip
_WITHOUT_CACHE = (
    Refusal(lambda c: not c.is_embedding, "[prefill_only_disable_kv_cache] needs --is-embedding"),
    Refusal(
        lambda c: c.kv_cache_dtype in ("nvfp4", "fp4_mx_block16", "fp4_e2m1", "mxfp8"),
        "[prefill_only_disable_kv_cache] does not go with [kv_cache_dtype]",
    ),
    Refusal(
        lambda c: c.asked.chunked_prefill_size != -1,
        "[prefill_only_disable_kv_cache] needs --chunked-prefill-size -1",
    ),
    Refusal(
        lambda c: not c.disable_radix_cache, "[prefill_only_disable_kv_cache] needs --disable-radix-cache"
    ),
    Refusal(lambda c: c.attn_cp_size > 1, "[prefill_only_disable_kv_cache] with [attn_cp_size]"),
    apart("prefill_only_disable_kv_cache", "enable_prefill_context_parallel", until=(0, 5, 14)),
    apart("prefill_only_disable_kv_cache", "enable_prefill_cp"),
    apart("prefill_only_disable_kv_cache", "enable_hisparse"),
    Refusal(
        lambda c: used_backends(c)[0] not in ("fa3", "fa4"),
        "[prefill_only_disable_kv_cache] needs attention backend fa3 or fa4 for prefills",
    ),
)

ROWS = (
    *under(lambda c: c.disaggregation_decode_retraction_backup == "host_pool", _HOST_POOL),
    Refusal(
        lambda c: c.radix_eviction_policy == "tlru" and (min(_tlru(c)) < 0 or _tlru(c)[0] <= _tlru(c)[1]),
        "[radix_eviction_policy]: --radix-eviction-policy-config needs a threshold above"
        " next_prompt_estimate, and neither below 0",
    ),
    Refusal(
        lambda c: c.enable_session_radix_cache and c.radix_eviction_policy != "priority",
        "[enable_session_radix_cache] needs --radix-eviction-policy priority",
        until=(0, 5, 17),
    ),
    apart("enable_hierarchical_cache", "disable_radix_cache"),
    *under(lambda c: c.disaggregation_decode_enable_offload_kvcache, _OFFLOAD),
    Refusal(
        lambda c: c.swa_full_tokens_ratio is not None and not 0 < c.swa_full_tokens_ratio <= 1,
        "[swa_full_tokens_ratio]: above 0 and at most 1 is possible",
    ),
    at_least(0, "swa_prefix_tails"),
    *under(lambda c: c.enable_lmcache, _LMCACHE, since=(0, 5, 21)),
    needs("enable_linker_mla_dedup", "enable_unified_cache_external_linker"),
    Refusal(
        lambda c: c.enable_linker_mla_dedup and c.unified_cache_external_linker_backend != "mooncake",
        "[enable_linker_mla_dedup] needs --unified-cache-external-linker-backend mooncake",
    ),
    *under(lambda c: c.enable_unified_cache_external_linker, _LINKER),
    Refusal(
        lambda c: c.hicache_host_memory_fraction is not None and not 0 < c.hicache_host_memory_fraction <= 1,
        "[hicache_host_memory_fraction]: above 0 and at most 1 is possible",
    ),
    *under(_tiers, _TIERS),
    *under(lambda c: c.dcp_size > 1 and c.enable_hierarchical_cache, _TIERED_CONTEXT, since=(0, 5, 17)),
    *under(lambda c: c.enable_hisparse, _HISPARSE),
    *under(lambda c: c.prefill_only_disable_kv_cache, _WITHOUT_CACHE),
    Refusal(
        lambda c: not 0 <= c.disaggregation_decode_host_receive_threshold <= 1,
        "[disaggregation_decode_host_receive_threshold] is not between 0 and 1",
    ),
    Refusal(
        lambda c: _receives_on_host(c) and (c.enable_hisparse or c.enable_pd_role_switch),
        "[disaggregation_decode_host_receive_threshold] with --enable-hisparse or --enable-pd-role-switch",
    ),
    Refusal(
        lambda c: _receives_on_host(c) and c.disaggregation_decode_retraction_backup == "cpu_tensor",
        "[disaggregation_decode_host_receive_threshold] with [disaggregation_decode_retraction_backup]",
    ),
    Refusal(
        lambda c: _receives_on_host(c) and c.disaggregation_mode != "decode",
        "[disaggregation_decode_host_receive_threshold] is for a server that decodes",
    ),
    Refusal(
        lambda c: _receives_on_host(c) and c.dcp_size > 1,
        "[disaggregation_decode_host_receive_threshold] does not go with [dcp_size]",
    ),
)
