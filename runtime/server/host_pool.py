"""A pool's tokens once more in the host's memory, and what moves them, on the GPU.

HostKVCache and what is made of it: srt/mem_cache/memory_pool_host.py, later in pool_host/ beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from runtime.server.config import ModelConfig
from runtime.server.errors import NeverStarts
from runtime.server.host_cache import HostCache
from runtime.server.host_memory import page_tables
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.releases import Release
from runtime.server.shape import Server
from runtime.server.sizing import (
    has_block_keys,
    has_window_pool,
    kept_layers,
    kv_bytes_behind,
    kv_bytes_per_token_and_layer,
    packed_fp8_bytes,
    pooled_indexer,
    pooled_layers,
    sliding_layers,
    windows_alone,
)

# What is read of it here; of a tier behind the host's, nothing is.
FLAGS = (
    *("enable_hierarchical_cache", "hicache_ratio", "hicache_size", "hicache_io_backend"),
    *("hicache_mem_layout", "hicache_host_memory_mode", "hicache_host_memory_fraction"),
)
_MOVED_PAGES, _MOVED_BYTES = 64, 16


@dataclass(frozen=True, slots=True)
class IndexPages:
    """An indexer's keys beside latents, with their scales: of a page more, in layers that have one."""

    pages: int
    layers: int
    page_bytes: int
    by_layers: bool  # as they lie in the host's memory
    stages: bool

    @property
    def bytes(self) -> int:
        return self.pages * self.layers * self.page_bytes

    def buffers(self) -> Iterator[tuple[str, int]]:
        for _ in range(2 if self.by_layers else 1):
            yield "pointers to the host's layers", 8 * self.layers
        if self.stages:
            yield "staging buffer", min(self.pages, _MOVED_PAGES) * self.layers * self.page_bytes


@dataclass(frozen=True, slots=True)
class HostPool:
    """One rank's. `parts`: bytes of a token in one layer, its keys' and its values', or its latent's."""

    tokens: int
    page: int
    layers: int
    parts: tuple[int, ...]
    stages: bool  # pages, on their way to the host
    index: IndexPages | None = None
    behind: HostPool | None = None  # of layers behind windows, which have a pool of their own

    @property
    def bytes(self) -> int:
        own = self.tokens * self.layers * sum(self.parts)
        return own + sum(one.bytes for one in (self.index, self.behind) if one is not None)

    @property
    def page_tables(self) -> int:
        """On the GPU: an entry for each page of the host's memory that it reaches, as was measured."""
        return page_tables(self.bytes)

    def buffers(self) -> Iterator[tuple[str, int]]:
        """Bytes of what else it holds on the GPU."""
        for _ in self.parts:
            yield "pointers to the host's layers", 8 * self.layers
        tokens = min(self.tokens // self.page, _MOVED_PAGES) * self.page
        for part in self.parts if self.stages else ():
            yield "staging buffer", tokens * self.layers * part
        for one in (self.index, self.behind):
            if one is not None:
                yield from one.buffers()


def host_pool(
    cache: HostCache,
    plan: PoolPlan,
    model: ModelConfig,
    parallel: ParallelConfig,
    layers: Sequence[int],
    release: Release,
) -> HostPool:
    """`layers` of this stage."""
    if cache.layout == "page_head" and model.mla is not None:
        raise NeverStarts("--hicache-mem-layout page_head: SGLang lays heads so, and no latents")
    layers = pooled_layers(model, layers, release.pools_next_layer)
    sliding = sliding_layers(model, layers)
    each = kv_bytes_per_token_and_layer(model, parallel, plan.kv_dtype, plan.packed)
    indexer = None if model.mla is None else model.mla.indexer
    key = 0 if indexer is None else packed_fp8_bytes(indexer.head_dim)
    each -= key
    parts = (each,) if model.mla is not None else (each // 2, each // 2)
    pool = _alone(cache, plan, plan.tokens, len(layers) - len(sliding), parts, release)
    if sliding:  # build_hybrid_swa_stack of hybrid_cache/hybrid_pool_assembler.py
        half = kv_bytes_behind(model, parallel, plan.kv_dtype) // 2
        behind = _alone(cache, plan, plan.sliding_tokens, len(sliding), (half, half), release)
        return replace(pool, behind=behind)
    if indexer is None:
        return pool
    staged = _is_staged(cache, release)
    pages, by_layers = pool.tokens // plan.page_size + 1, cache.layout == "layer_first"
    index = IndexPages(pages, len(layers), key * plan.page_size, by_layers, staged)
    return replace(pool, index=index)


def _alone(
    cache: HostCache, plan: PoolPlan, there: int, layers: int, parts: tuple[int, ...], release: Release
) -> HostPool:
    """Of a pool that has so many tokens on the GPU."""
    wanted = int(there * cache.ratio)
    if cache.gigabytes:
        wanted = int(cache.gigabytes * 1e9 // (sum(parts) * layers))
    tokens = (wanted // plan.page_size + 1) * plan.page_size
    if release.host_cache_is_larger and tokens <= there:
        raise NeverStarts(
            f"{tokens:,} tokens in the host's memory, and {there:,} on the GPU: until 0.5.14 SGLang "
            "wants more of the first, a --hicache-ratio above 1 or a larger --hicache-size"
        )
    is_latent = len(parts) == 1
    if _looks_for_layers_among_pages(cache, is_latent, release) and tokens // plan.page_size < layers:
        raise NeverStarts(
            f"--hicache-mem-layout {cache.layout}: SGLang looks for each of {layers} layers among "
            f"{tokens // plan.page_size} pages in the host's memory, and ends"
        )
    stages = _is_staged(cache, release) and all(part % _MOVED_BYTES == 0 for part in parts)
    return HostPool(tokens, plan.page_size, layers, parts, stages)


def _is_staged(cache: HostCache, release: Release) -> bool:
    return release.stages_write_backs and cache.layout == "page_first"


def _looks_for_layers_among_pages(cache: HostCache, is_latent: bool, release: Release) -> bool:
    """For pointers that nothing reads then."""
    is_read = release.finds_layers_in_pages and not is_latent
    return cache.layout == "page_head" or (cache.layout == "page_first_direct" and not is_read)


def follows_host_cache(model: ModelConfig, server: Server) -> bool:
    """Stages agree on how many tokens some GB are, and are not asked here."""
    cache = server.runtime.host_cache
    if cache is None:
        return False
    is_indexed = model.mla is not None and model.mla.indexer is not None
    several = server.pp_size > 1 or is_indexed or has_window_pool(model)
    return knows_host_pool(model, server.parallel, server.release) and not (several and cache.gigabytes)


def knows_host_pool(model: ModelConfig, parallel: ParallelConfig, release: Release) -> bool:
    """Of a pool in which every layer has every token, and has it alike, or of that beside one of windows."""
    if model.by_transformers or model.compressed is not None or model.recurrent is not None:
        return False
    if model.mla is not None:
        indexer = model.mla.indexer
        return model.mla_behind is None and (indexer is None or (indexer.pool == 1 and not indexer.sharing))
    layers, kinds = range(model.num_layers), model.attention.values()
    alike = {(one.num_kv_heads, one.head_dim) for one in kinds}
    apart = _is_apart(model, parallel) or has_block_keys(model) or pooled_indexer(model)
    whole = kept_layers(model, layers) == [*layers] and not model.crosses
    is_square = all(one.head_dim == one.value_width for one in kinds)
    is_known = release.host_cache_has_windows if has_window_pool(model) else len(alike) == 1
    return not apart and whole and is_square and is_known


def _is_apart(model: ModelConfig, parallel: ParallelConfig) -> bool:
    """A stage has windows alone, of which SGLang keeps nothing elsewhere."""
    stages = (stage_layers(model.num_layers, parallel, at) for at in range(parallel.pp))
    return any(windows_alone(model, layers) for layers in stages)


def has_tiers(server: Server) -> bool:
    """Any, of which the flags of one tell how large it is."""
    asked = server.asked
    offloads = asked.disaggregation_decode_enable_offload_kvcache or server.is_pd_decode
    return asked.enable_hierarchical_cache or offloads
