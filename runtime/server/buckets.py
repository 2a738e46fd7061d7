"""FlashInfer's buckets: the row counts that are tuned, and how far a call's buckets reach."""

from __future__ import annotations

from itertools import chain, count, takewhile

from runtime.server.backends import MoEBackendRow

_LARGEST_OF_CHUNKS = 8192
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096)


def tuning_buckets(maximum: int) -> tuple[int, ...]:
    """FlashInfer's list, doubling where it ends; and the maximum itself."""
    doubled = (_SIZES[-1] << doublings for doublings in count(1))
    return (*takewhile(lambda size: size < maximum, chain(_SIZES, doubled)), maximum)


def bucket_of(rows: int, buckets: tuple[int, ...]) -> int:
    """Lookups round up, and stop at the last bucket."""
    return next((bucket for bucket in buckets if bucket >= rows), buckets[-1])


def next_power_of_2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def tuning_range(backend: MoEBackendRow, rows: int, prefill_rows: int) -> int:
    """The largest bucket of a MoE call with `rows` rows; a gathered prefill chunk has `prefill_rows`."""
    if backend.calls == "cutlass":
        return min(prefill_rows, _LARGEST_OF_CHUNKS)
    return next_power_of_2(rows)
