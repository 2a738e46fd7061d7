"""What a start did with its files of tactics is read from its record: taken, ignored, still measured."""

from typing import Any

from runtime.record.record import Record
from sgl_tune.recorded.caches import Reading, readings_of
from tests.warm.recorded.test_planned import FOLDER, OWN, asked, call, named, record

TYPED = f"{FOLDER}/rank_tp0_pp0_dp0.json"
MADE = "flashinfer/autotune/0.7.2/sm90/made"  # of the folder that stands for the model
OPENED = f"/work/home/.cache/sglang/{MADE}/rank_tp0_pp0_dp0.json"
LOOKED_FOR = "flashinfer tactics"


def looked(found: bool) -> dict[str, Any]:
    return {**named("tp0_pp0_dp0", store=LOOKED_FOR, folder=MADE), "found": found}


def key(name: str, profiled: int = 0, mode: str = "tune") -> dict[str, Any]:
    return {"event": "key", "mode": mode, "op": "op", "key": name, "asked": 1, "profiled": profiled}


def said(text: str, phase: str = "autotune") -> dict[str, Any]:
    return {"event": "said", "phase": phase, "level": "info", "text": text}


def started(*events: dict[str, Any], found: bool = True) -> Record:
    own = named("tp0_pp0_dp0", store=OWN, folder=MADE)
    return record(asked(), own, named("tp0_pp0_dp0"), looked(found), call("a"), *events)


def reading(*events: dict[str, Any], given: tuple[str, ...] = (TYPED,), found: bool = True) -> Reading:
    (one,) = readings_of([started(*events, found=found)], given)
    return one


def test_a_file_that_was_taken_and_nothing_measured_is_good() -> None:
    one = reading(key("a"))
    assert one.files == {TYPED: True} and one.is_good and one.profiled == ()
    assert one.says == "rank 0 took 1 of 1 file and measured for 0 of 1 questions to the tuner"


def test_a_key_that_was_measured_is_named() -> None:
    one = reading(key("a", profiled=12), key("b"), key("c", mode="serve"))
    assert one.profiled == ("a",) and one.asked == 2 and not one.is_good


def test_a_file_that_was_left_alone_is_not_one_that_was_not_there() -> None:
    ignored, absent = reading(key("a", 1), found=False), reading(key("a", 1), given=(), found=False)
    assert ignored.files == {TYPED: False} and absent.files == {TYPED: None}
    assert not ignored.is_good and not absent.is_good


def test_the_starts_own_words_are_those_about_the_file_alone() -> None:
    lines = [
        f"[Autotuner]: Loaded 14 configs from {OPENED}",
        "Load weight",
        "[Autotuner]: Autotuning process ends",
    ]
    one = reading(key("a"), *map(said, lines), said("[Autotuner]: elsewhere", phase="decode graphs"))
    assert one.said == (f"[Autotuner]: Loaded 14 configs from {TYPED}",)
