"""What a start wants of the host's memory, for weights and a cache of two tiers: nobody here knows how much
there is."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.units import GIB
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import Start
from sgl_tune.units import memory_bytes

# srt/mem_cache/pool_host/base.py, hicache_auto_size.py
_LEFT_TO_OTHERS, _LEFT_TO_ROUNDING = 10 * GIB, 0.05


def wanted_of_host(start: Start, report: MemoryReport) -> Iterator[str]:
    """Ranks have as much as the one that is reported, but for stages of other layers."""
    each, cache, release = report.sizes.host_cache_bytes, start.runtime.host_cache, start.runtime.release
    ranks = max(1, start.parallel.world_size // start.parallel.nnodes)
    if pages := report.sizes.host_weight_pages:
        yield f"weights take {_of_node(pages, ranks)}: torch rounds each matrix there up to a power of two"
    if each is None or cache is None:
        return
    total = _of_node(each, ranks)
    if cache.share is not None:
        least = each * ranks / cache.share / (1 - _LEFT_TO_ROUNDING) + _LEFT_TO_OTHERS
        yield f"the host cache takes {total}, and less where {memory_bytes(round(least))} are not available"
        return
    least = each * (ranks if release.ranks_share_host else 1) + _LEFT_TO_OTHERS
    whose = "SGLang" if release.ranks_share_host or ranks == 1 else "each rank by itself"
    yield f"the host cache takes {total}; {whose} ends where {memory_bytes(least)} are not available"


def _of_node(each: int, ranks: int) -> str:
    return f"{memory_bytes(each * ranks)} of a node's memory" + (f", in {ranks} ranks" if ranks > 1 else "")
