"""The record of what FlashInfer is asked: complete, in both modes, and without a say in the answers."""

from collections.abc import Iterator

import pytest
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.cpu import GEMM1
from runtime.autotune.cpu_clock import CpuClock, CpuSearchTuner
from runtime.autotune.record import record_asked
from tests.runtime.tuned_layer import BUCKETS, Layer, installed


@pytest.fixture(params=[CpuClock, CpuSearchTuner], ids=["stock loop", "shared search"], autouse=True)
def _tuner(request: pytest.FixtureRequest) -> Iterator[None]:
    with installed(request.param()):
        yield


def test_an_untuned_call_misses_at_the_bucket_of_its_rows() -> None:
    with record_asked() as record:
        Layer()(rows=5)
    seen = [(asked.op[-5:], asked.bucket, asked.mode, asked.hit) for asked in record.asked]
    assert seen == [("gemm1", 8, "serving", False), ("gemm2", 8, "serving", False)]
    assert record.hits == 0 and record.missed == tuple(record.asked)


def test_tuning_asks_for_every_bucket_once() -> None:
    layer = Layer()
    with record_asked() as record, autotune(True):
        layer()
    assert [asked.bucket for asked in record.asked] == [*BUCKETS, *BUCKETS]
    assert record.keys("tuning") == layer.keys() and record.keys("serving") == set()
    assert not any(asked.hit for asked in record.asked)


def test_tuned_rows_hit_up_to_the_last_bucket_and_beyond() -> None:
    layer = Layer()
    with autotune(True):
        layer()
    with record_asked() as record:
        for rows in (1, 3, 16, 17, 1000):
            layer(rows)
    assert [asked.bucket for asked in record.asked if asked.op == GEMM1] == [1, 4, 16, 16, 16]
    assert record.hits == 10 and not record.missed


def test_the_answers_stay_what_they_are() -> None:
    layer = Layer()
    with autotune(True):
        layer()
    tuner = AutoTuner.get()
    table, misses = dict(tuner.profiling_cache), len(tuner._logged_cache_miss_oor)
    plain = layer(9)
    with record_asked():
        assert (layer(9) == plain).all()
    assert tuner.profiling_cache == table and len(tuner._logged_cache_miss_oor) == misses
    assert "choose_one" not in vars(tuner)


def test_a_failing_forward_leaves_the_tuner_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), record_asked() as record:
        Layer()()
        _ = 1 / 0
    assert len(record.asked) == 2 and "choose_one" not in vars(AutoTuner.get())
