"""FlashInfer's row counts: which are tuned, and which one a call of so many rows looks up."""

import pytest

from runtime.server.buckets import bucket_of, next_power_of_2, tuning_buckets

POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@pytest.mark.parametrize(
    ("maximum", "buckets"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (256, POWERS),
        (800, (*POWERS, 512, 768, 800)),
        (2048, (*POWERS, *range(512, 2049, 256))),
        (4096, (*POWERS, *range(512, 2049, 256), 2560, 3072, 3584, 4096)),
        (9000, (*POWERS, *range(512, 2049, 256), 2560, 3072, 3584, 4096, 8192, 9000)),
    ],
)
def test_tuning_buckets_are_flashinfers(maximum: int, buckets: tuple[int, ...]) -> None:
    assert tuning_buckets(maximum) == buckets


def test_a_lookup_rounds_up_and_stops_at_the_last() -> None:
    assert [bucket_of(rows, (1, 2, 4)) for rows in (1, 2, 3, 4, 5, 100)] == [1, 2, 4, 4, 4, 4]


def test_the_next_power_of_two_is_found() -> None:
    assert [next_power_of_2(rows) for rows in (0, 1, 2, 3, 4, 5, 4097)] == [1, 1, 2, 4, 4, 8, 8192]
