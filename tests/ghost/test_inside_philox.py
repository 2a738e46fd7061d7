"""Random numbers as torch draws them on a GPU."""

import pytest

from runtime.ghost.inside.philox import uniform


@pytest.mark.parametrize(
    ("seed", "drawn"), [(0, [0.3990, 0.5167, 0.0249, 0.9401, 0.9459]), (42, [0.6130, 0.0101, 0.3984])]
)
def test_numbers_are_those_of_a_gpu_with_this_seed(seed: int, drawn: list[float]) -> None:
    assert uniform(seed, 0, len(drawn), 0.0, 1.0) == pytest.approx(drawn, abs=5e-5)


def test_numbers_lie_in_the_interval_that_was_asked_for() -> None:
    drawn = uniform(1234, 4, 256, -1e-3, 1e-3)
    assert -1e-3 <= min(drawn) < -9e-4 and 9e-4 < max(drawn) < 1e-3
    assert len(set(drawn)) == 256
