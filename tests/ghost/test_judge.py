"""The judge: what counts as good, and a table that is fitted without the judged start's model."""

from dataclasses import replace

import pytest

from runtime.ghost.outside import table
from runtime.record.events import record_of
from runtime.record.parts import Ending, Inexact, Phase, Sizes
from runtime.record.record import Record
from tests.ghost.fit_outside import FULLEST, GRANULE, Counts, Seen, fitted, seen
from tests.ghost.judge_table import row_of
from tests.ghost.real_starts import RealStart, real_starts
from tests.ghost.verdicts import MIB, verdict
from tests.record.test_record import ASKED, ENDED, READY

GIB = 1 << 30
STUB = Inexact("module", "norm.rmsnorm", "decode graphs", "", "there is no such module")


def real(**changed: object) -> RealStart:
    peaks = {"weights": 10 * GIB, "decode graphs": 20 * GIB}
    figures = {"kv_tokens": 100_000, "peaks": peaks, "outside": {"weights": 700 * MIB}}
    start = RealStart("first/small", "small-4l", gpus=1, flags=(), died_in=None, error="", **figures)
    return replace(start, **changed)


def phase(name: str, peak: int, outside: int = 700 * MIB) -> Phase:
    total, reserved = 140 * GIB, 30 * GIB
    free = total - reserved - outside
    return Phase(name, 0, 1.0, 0, peak, reserved, peak, reserved, free, total, least_free=free)


def record(
    tokens: int = 100_000, peak: int = 20 * GIB, ending: Ending | None = None, *why: Inexact
) -> Record:
    return replace(
        record_of(ASKED, [READY, ENDED]),
        phases=(phase("weights", 10 * GIB), phase("decode graphs", peak)),
        ending=ending or Ending("ready"),
        sizes=None if ending else Sizes(tokens, 100, 0.9, 8192, 32768),
        inexact=why,
    )


def test_a_record_that_is_the_real_start_is_good_and_exact() -> None:
    found = verdict(real(), record())
    assert found.good and found.exact and found.within and found.because == "exact"


@pytest.mark.parametrize(
    ("start", "tokens", "peak", "within"),
    [
        (real(), 100_010, 20 * GIB, True),
        (real(), 100_011, 20 * GIB, False),
        (real(), 100_000, 20 * GIB - MIB, True),
        (real(), 100_000, 20 * GIB + MIB + 1, False),
        (real(gpus=2), 99_900, 20 * GIB + 4 * MIB, True),
        (real(gpus=4), 99_899, 20 * GIB, False),
        (real(gpus=4), 100_000, 20 * GIB - 4 * MIB - 1, False),
    ],
)
def test_limits_go_by_the_number_of_gpus(start: RealStart, tokens: int, peak: int, within: bool) -> None:
    found = verdict(start, record(tokens, peak))
    assert found.within is found.good is within


def test_a_record_that_says_why_not_may_be_outside_the_limits() -> None:
    found = verdict(real(), record(200_000, 20 * GIB, None, STUB))
    assert found.good and not found.within
    assert found.because == "not exact: module norm.rmsnorm"


@pytest.mark.parametrize(
    ("start", "ending", "alike"),
    [
        (real(died_in="autotune"), Ending("died", "autotune"), True),
        (real(died_in="autotune"), Ending("died", "eager"), False),
        (real(died_in="autotune"), None, False),
        (real(), Ending("refused"), False),
        (real(), Ending("broken", text="no word"), False),
    ],
)
def test_a_wrong_ending_is_never_good(start: RealStart, ending: Ending | None, alike: bool) -> None:
    found = verdict(start, record(100_000, 20 * GIB, ending, STUB))
    assert found.ends_alike is alike
    assert found.good is alike


def test_a_phase_that_the_ghost_lacks_is_outside_the_limits() -> None:
    found = verdict(real(peaks={"weights": 10 * GIB, "autotune": GIB}), record())
    assert not found.within and "autotune" in row_of(found)


def test_a_row_names_the_endings_and_the_worst_differences() -> None:
    row = row_of(verdict(real(), record(100_000, 20 * GIB + 3 * MIB)))
    assert "+3.00 MiB decode graphs" in row and "OUT OF ITS LIMITS" in row
    assert "WRONG ENDING" in row_of(verdict(real(died_in="kv pool"), record()))


def test_the_measured_starts_are_all_there() -> None:
    starts = list(real_starts())
    assert len(starts) == len({start.name for start in starts}) == 92
    assert sum(start.gpus == 1 for start in starts) == 63
    assert sum(start.died_in is not None for start in starts) == 17


def test_cuts_and_quantizations_of_a_model_are_its_family() -> None:
    families = {start.model: start.family for start in real_starts()}
    assert families["qwen3-30b-16l"] == families["qwen3-30b-fp8"] == families["qwen3-30b"] == "qwen3-30b"
    assert families["mixtral-fp8-16l"] == families["mixtral-16l"] == "mixtral"
    assert families["llama-8b-fp8-dynamic"] == families["llama-8b-w8a8"] == "llama-8b"
    assert families["llama-70b-24l"] == "llama-70b"


# --- the fit

TRUE = {"context": 600 * MIB, "libraries": 70 * MIB, "cublas": 64 * MIB, "graph": 120_000, "node": 2_500}
ROOM, CUBLAS_CODE = 340 << 10, 2115 << 10
NONE = dict.fromkeys(
    ("own", "code", "graphs", "nodes", "branches", "messages", "message_graphs", "modules"), 0
) | {f"communicators_{ranks}": 0 for ranks in range(1, 9)}


def granules(code: int) -> int:
    return max(0, code - ROOM + GRANULE) // GRANULE * GRANULE


def made(name: str, code: int, graphs: int, nodes: int, branches: int = 0) -> Seen:
    """Return a start made with the numbers above."""
    early = TRUE["context"] + TRUE["libraries"] + granules(code)
    later = TRUE["context"] + TRUE["libraries"] + TRUE["cublas"] + granules(code + CUBLAS_CODE)
    held = (graphs + branches) * TRUE["graph"] + nodes * TRUE["node"]
    outside = {
        "communicator": TRUE["context"],
        "weights": early,
        CUBLAS: later,
        "decode graphs": later + held,
    }
    kernels: Counts = {**NONE, "code": code}
    captured = {**kernels, "graphs": graphs, "nodes": nodes, "branches": branches}
    observed = {"communicator": NONE, "weights": kernels, CUBLAS: kernels, "decode graphs": captured}
    return seen(real(name=name, model=name, outside=outside), observed)


CUBLAS = "attention backend"
KNOWN = [
    made("a", 200 << 10, 30, 9_000),
    made("b", 338 << 10, 900, 20_000),
    made("c", 342 << 10, 2_000, 16_000),
    made("d", 400 << 10, 900, 21_000, 900),
]


def test_a_fit_finds_the_numbers_that_made_the_starts() -> None:
    numbers = fitted(KNOWN, table()).numbers
    assert {name: numbers[name].bytes for name in TRUE} == TRUE
    assert 338 << 10 < numbers["room"].bytes < 342 << 10
    reach = numbers["room"].bytes + GRANULE - numbers["cublas_code"].bytes
    assert 200 << 10 < reach < 338 << 10


def test_communicators_and_messages_are_told_by_starts_on_several_gpus() -> None:
    opened = {**NONE, "communicators_2": 1}
    forward = {**opened, "communicators_2": 2}
    graphs = [
        {**forward, "graphs": count, "nodes": count, "message_graphs": count, "messages": sent}
        for count, sent in ((10, 300), (40, 500))
    ]
    fixed = TRUE["context"] + TRUE["libraries"] + 832 * MIB
    several = []
    for place, last in enumerate(graphs):
        held = last["graphs"] * (TRUE["graph"] + TRUE["node"] + 99_000) + last["messages"] * 130_000
        outside = {"communicator": fixed, "autotune": fixed + 544 * MIB}
        outside["decode graphs"] = outside["autotune"] + held
        observed = {"communicator": opened, "autotune": forward, "decode graphs": last}
        start = real(name=f"two/{place}", model=f"two{place}", gpus=2, outside=outside)
        several.append(seen(start, observed))
    numbers = fitted([*KNOWN, *several], table()).numbers
    assert numbers["communicator_2"].bytes == 544 * MIB
    assert numbers["first"].bytes == 288 * MIB
    assert numbers["communicator_4"] == table().numbers["communicator_4"], "no start on four"
    assert (numbers["message_graph"].bytes, numbers["message"].bytes) == (99_000, 130_000)


def test_the_first_communicator_is_as_measured_and_the_fullest_rank_in_granules() -> None:
    fixed = TRUE["context"] + TRUE["libraries"]
    two = real(name="two", model="two", gpus=2)
    opened = {**NONE, "communicators_2": 1}
    outside = {"communicator": fixed + 832 * MIB, "autotune": fixed + (832 + 544) * MIB}
    observed = {"communicator": opened, "autotune": {**opened, "communicators_2": 2}}
    later = {"communicator": fixed + 840 * MIB, "autotune": fixed + (840 + 544) * MIB}
    four = real(name="four", model="four", gpus=4, outside={"communicator": fixed + 1074 * MIB})
    pool = {**NONE, "communicators_4": 1, FULLEST: 48 * MIB + 1}
    known = [seen(replace(two, outside=one), observed) for one in (outside, later, outside)]
    known.append(seen(four, {"communicator": {**NONE, "communicators_4": 1}, "kv pool": pool}))
    numbers = fitted([*KNOWN, *known], table()).numbers
    first = numbers["first"].bytes
    assert first + numbers["communicator_2"].bytes == 832 * MIB
    assert first + numbers["communicator_4"].bytes == 1074 * MIB
    assert numbers["peers_4"].bytes == 48 * MIB
