"""FlashInfer's buckets: the row counts that are tuned, and the largest bucket of a call."""

from itertools import chain, count, takewhile

from runtime.server.backends import MoEBackendRow

_LARGEST_OF_CHUNKS = 8192
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096)


def tuning_buckets(maximum: int) -> tuple[int, ...]:
    """Return FlashInfer's sizes below `maximum`, doubled after the last one, and `maximum` itself."""
    doubled = (_SIZES[-1] << doublings for doublings in count(1))
    return (*takewhile(lambda size: size < maximum, chain(_SIZES, doubled)), maximum)


def bucket_of(rows: int, buckets: tuple[int, ...]) -> int:
    """Return the bucket that FlashInfer looks up: the next larger one, or the last."""
    return next((bucket for bucket in buckets if bucket >= rows), buckets[-1])


def next_power_of_2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def tuning_range(backend: MoEBackendRow, rows: int, prefill_rows: int) -> int:
    """Return the largest bucket of a MoE call with `rows` rows, in which a prefill has `prefill_rows`."""
    if backend.calls == "cutlass":
        return min(prefill_rows, _LARGEST_OF_CHUNKS)
    return next_power_of_2(rows)
