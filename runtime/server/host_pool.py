"""A pool's tokens once more in the host's memory, and what moves them, on the GPU.

HostKVCache and what is made of it: srt/mem_cache/memory_pool_host.py, later in pool_host/ beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.server.config import ModelConfig
from runtime.server.errors import NeverStarts
from runtime.server.host_cache import HostCache
from runtime.server.host_memory import page_tables
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.releases import Release
from runtime.server.shape import Server
from runtime.server.sizing import (
    has_block_keys,
    has_window_pool,
    kept_layers,
    kv_bytes_per_token_and_layer,
    packed_fp8_bytes,
    pooled_indexer,
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

    @property
    def bytes(self) -> int:
        own = self.tokens * self.layers * sum(self.parts)
        return own if self.index is None else own + self.index.bytes

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
        if self.index is not None:
            yield from self.index.buffers()


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
    each = kv_bytes_per_token_and_layer(model, parallel, plan.kv_dtype, plan.packed)
    indexer = None if model.mla is None else model.mla.indexer
    key = 0 if indexer is None else packed_fp8_bytes(indexer.head_dim)
    each -= key
    parts = (each,) if model.mla is not None else (each // 2, each // 2)
    wanted = int(plan.tokens * cache.ratio)
    if cache.gigabytes:
        wanted = int(cache.gigabytes * 1e9 // (each * len(layers)))
    tokens = (wanted // plan.page_size + 1) * plan.page_size
    if release.host_cache_is_larger and tokens <= plan.tokens:
        raise NeverStarts(
            f"{tokens:,} tokens in the host's memory, and {plan.tokens:,} on the GPU: until 0.5.14 SGLang "
            "wants more of the first, a --hicache-ratio above 1 or a larger --hicache-size"
        )
    if _looks_for_layers_among_pages(cache, model, release) and tokens // plan.page_size < len(layers):
        raise NeverStarts(
            f"--hicache-mem-layout {cache.layout}: SGLang looks for each of {len(layers)} layers among "
            f"{tokens // plan.page_size} pages in the host's memory, and ends"
        )
    staged = release.stages_write_backs and cache.layout == "page_first"
    stages = staged and all(part % _MOVED_BYTES == 0 for part in parts)
    index = None
    if indexer is not None:
        pages = tokens // plan.page_size + 1
        by_layers = cache.layout == "layer_first"
        index = IndexPages(pages, len(layers), key * plan.page_size, by_layers, staged)
    return HostPool(tokens, plan.page_size, len(layers), parts, stages, index)


def _looks_for_layers_among_pages(cache: HostCache, model: ModelConfig, release: Release) -> bool:
    """For pointers that nothing reads then."""
    is_read = release.finds_layers_in_pages and model.mla is None
    return cache.layout == "page_head" or (cache.layout == "page_first_direct" and not is_read)


def follows_host_cache(model: ModelConfig, server: Server) -> bool:
    """Stages agree on how many tokens some GB are, and are not asked here."""
    cache = server.runtime.host_cache
    if cache is None:
        return False
    is_latent = model.mla is not None and model.mla.indexer is not None
    several = server.pp_size > 1 or is_latent
    return knows_host_pool(model) and not (several and cache.gigabytes)


def knows_host_pool(model: ModelConfig) -> bool:
    """Of a pool in which every layer has every token, and has it alike: of others there are several."""
    if model.by_transformers or model.compressed is not None or model.recurrent is not None:
        return False
    if model.mla is not None:
        indexer = model.mla.indexer
        return model.mla_behind is None and (indexer is None or (indexer.pool == 1 and not indexer.sharing))
    layers, kinds = range(model.num_layers), model.attention.values()
    alike = {(one.num_kv_heads, one.head_dim, one.value_width) for one in kinds}
    apart = has_window_pool(model) or model.in_windows or has_block_keys(model) or pooled_indexer(model)
    whole = kept_layers(model, layers) == [*layers] and not model.crosses
    return not apart and whole and len(alike) == 1 and all(one[1] == one[2] for one in alike)


def has_tiers(server: Server) -> bool:
    """Any, of which the flags of one tell how large it is."""
    asked = server.asked
    offloads = asked.disaggregation_decode_enable_offload_kvcache or server.is_pd_decode
    return asked.enable_hierarchical_cache or offloads
