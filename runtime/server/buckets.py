"""FlashInfer's buckets: the row counts that are tuned, and how far a call's buckets reach."""

from __future__ import annotations

from runtime.server.backends import MoEBackendRow
from runtime.server.releases import Release

_LARGEST_OF_CHUNKS = 8192


def tuning_buckets(maximum: int) -> tuple[int, ...]:
    """FlashInfer's list: 1, 2, 4 .. 256, steps of 256, of 512, then doubling; and the maximum itself."""
    sizes = [1 << i for i in range(9)] + [*range(512, 2049, 256)] + [*range(2560, 4097, 512)]
    while sizes[-1] < maximum:
        sizes.append(sizes[-1] * 2)
    return tuple(sorted({size for size in sizes if size <= maximum} | {maximum}))


def bucket_of(rows: int, buckets: tuple[int, ...]) -> int:
    """Lookups round up, and stop at the last bucket."""
    return next((bucket for bucket in buckets if bucket >= rows), buckets[-1])


def next_power_of_2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def tuning_range(
    backend: MoEBackendRow, release: Release, rows: int, prefill_rows: int, pd_decode: bool
) -> int:
    """The largest bucket of a MoE call with `rows` rows; a gathered prefill chunk has `prefill_rows`."""
    if backend.ranged_by_chunk and release.ranges_by_chunk and not pd_decode:
        return min(prefill_rows, _LARGEST_OF_CHUNKS)
    return next_power_of_2(rows)
