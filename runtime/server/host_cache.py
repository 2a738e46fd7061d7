"""A cache of two tiers as it is asked for: how much of the host's memory, and how tokens lie in it. Data.

srt/arg_groups/hicache_hook.py, before 0.5.19 in srt/server_args.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.asked import Asked
from runtime.server.releases import Release

_RATIO, _SHARE = 2.0, 0.8
_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
_MOVED_BY = ("kernel", "direct")  # the third is another hardware's
# Tiers behind it whose libraries allocate the host's memory themselves
_ALLOCATE = ("mooncake", "mori", "shm", "tensorcast", "npu_memcache", "dynamic")
_OTHERWISE = (
    *("enable_unified_memory", "enable_hisparse", "radix_cache_backend", "enable_lmcache", "enable_flexkv"),
    *("enable_kv_cache_sharding", "enable_unified_cache_external_linker"),
)


@dataclass(frozen=True, slots=True)
class HostCache:
    """`gigabytes` of each rank; 0: a `ratio` of its pool's tokens. `share`: of what its host has left: it
    stays within that, whatever the ratio."""

    ratio: float
    gigabytes: int
    layout: str
    share: float | None = None


def host_cache_of(asked: Asked, release: Release) -> HostCache | None:
    """None of a server without one, or with one that is not followed here."""
    if not asked.enable_hierarchical_cache or _is_otherwise(asked):
        return None
    told, layout = asked.others, _layout(asked, release)
    if layout not in _LAYOUTS:
        return None
    size, ratio = told.get("hicache_size") or 0, told.get("hicache_ratio")
    share = told.get("hicache_host_memory_fraction") or _SHARE
    stays_within = release.fits_host_cache and ratio is None and size <= 0
    return HostCache(
        _RATIO if ratio is None else ratio, max(0, size), layout, share if stays_within else None
    )


def _is_otherwise(asked: Asked) -> bool:
    """Not one cache of one model, each rank's for itself, kept by whatever is behind it or by nothing."""
    told = asked.others
    role = asked.disaggregation_mode != "null" or asked.disaggregation_decode_enable_offload_kvcache
    drafts = asked.speculative_algorithm is not None or told.get("hicache_host_memory_mode") == "buffer_only"
    shared = asked.attn_cp_size > 1 or asked.dcp_size > 1 or any(told.get(name) for name in _OTHERWISE)
    return role or drafts or shared or told.get("hicache_storage_backend") in _ALLOCATE


def _layout(asked: Asked, release: Release) -> str:
    """How tokens lie goes with what moves them."""
    layout = asked.hicache_mem_layout or release.host_cache_layout
    if asked.hicache_io_backend not in _MOVED_BY:
        return ""
    return "page_first_direct" if (layout, asked.hicache_io_backend) == ("page_first", "direct") else layout
