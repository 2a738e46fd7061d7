"""The search for the largest start, over servers that are three numbers: weights, and what comes on top."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.record.events import Event
from runtime.server.units import GIB, MIB
from runtime.sglang.releases import NEWEST
from sgl_tune.errors import CheckFailed
from sgl_tune.memory.fit import Fit, Search
from sgl_tune.memory.options import Goals
from sgl_tune.memory.starting import Change, Layout, Started
from tests.sgl_tune.memory import records
from tests.sgl_tune.memory.records import ENDED, OUTSIDE, READY, TOTAL, arguments, made, phase, reading

MARGIN = 6 * MIB
USABLE = (TOTAL - OUTSIDE) / GIB


def outcome(*events: Event) -> Started:
    return Started((records.report(made(*events), MARGIN),), Layout(), graphs=512, seconds=8.0)


@dataclass
class Server:
    """Sizes in GiB. `on_top`: of the dummy batch beyond the pool, for each token of the chunk; `graphs`:
    for each request in the largest graph."""

    weights: float = 15.0
    fraction: float = 0.9
    on_top: float = 2.0 / 8192
    graphs: float = 1.0 / 512
    said: list[Change] = field(default_factory=list)

    def __call__(self, change: Change, least: int | None) -> Started:
        self.said.append(change)
        flags: dict[str, Any] = dict(change.parts)
        fraction = float(flags.get("mem-fraction-static", self.fraction))
        chunk = int(flags.get("chunked-prefill-size", 8192))
        batch = 0 if "disable-cuda-graph" in flags else int(flags.get("cuda-graph-max-bs-decode", 512))
        pool = int((fraction * USABLE - self.weights) * 512) / 512
        given = arguments(mem_fraction_static=fraction, chunked_prefill_size=chunk)
        events = [given, phase("communicator", 0, 0, 0, 0), phase("weights", 0, *[self.weights] * 3)]
        if pool <= 0:
            text = "Loaded weights leave no GPU memory for the KV cache"
            died = {"event": "died", "phase": "kv pool", "type": "ValueError", "text": text, "stack": []}
            at = reading(self.weights, *[self.weights] * 3)
            return outcome(*events, {**died, **at}, ENDED)
        held = self.weights + pool
        events.append(phase("kv pool", self.weights, *[held] * 3))
        for name, more in (("prefill graphs", self.on_top * chunk), ("decode graphs", self.graphs * batch)):
            if held + more > USABLE:
                free = TOTAL - OUTSIDE - held * GIB
                text = (
                    f"CUDA out of memory. Tried to allocate {more:.2f} GiB. GPU 0 has a total capacity of "
                    f"140.00 GiB of which {free / GIB:.2f} GiB is free."
                )
                died = {"event": "died", "phase": name, "type": "OutOfMemoryError", "text": text, "stack": []}
                events += [{**died, **reading(held, held, held, held)}, ENDED]
                return outcome(*events)
            events.append(phase(name, held, held, held + more, held + more))
        sizes = {"kv_tokens": round(pool * 8192), "mem_fraction_static": fraction}
        ready = {**READY, **sizes, "chunked_prefill_size": chunk, "max_running_requests": 2048}
        return outcome(*events, ready, ENDED)


def fit(server: Server, goals: Goals = Goals()) -> Fit:
    return Search(server, NEWEST, goals).fit()


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.984, 0.99])
def test_what_is_found_fits_and_a_notch_more_does_not(fraction: float) -> None:
    server = Server(fraction=fraction)
    found = fit(server)
    assert found.best.slack >= MARGIN and found.best.report.verdict == "fits"
    assert found.beyond is not None and found.beyond.notch == found.best.notch + 1
    assert found.beyond.slack < MARGIN
    assert found.best.notch == 985, "2 GiB on top of 139.4 leave 0.9856 of it"
    assert len(server.said) <= 5 and not found.given_up


def test_a_start_that_fits_to_the_notch_costs_two_more() -> None:
    server = Server(fraction=0.985)
    assert fit(server).best.flags == {"mem_fraction_static": 0.985}
    assert len(server.said) <= 3


def test_what_must_stay_free_is_left() -> None:
    found = fit(Server(), Goals(free_bytes=4 * GIB))
    assert found.best.slack >= 4 * GIB + MARGIN and found.beyond is not None
    assert found.beyond.slack < 4 * GIB + MARGIN


def test_too_low_a_fraction_is_raised_above_the_weights() -> None:
    assert fit(Server(fraction=0.05)).best.notch == 985


def test_where_no_fraction_fits_what_the_tightest_phase_goes_by_is_halved() -> None:
    found = fit(Server(weights=136.0, on_top=6.0 / 8192))
    assert found.given_up == ("chunks of 4,096, not 8,192",)
    assert found.best.flags["chunked_prefill_size"] == 4096 and found.best.slack >= MARGIN


def test_graphs_give_way_to_what_graphs_take() -> None:
    found = fit(Server(weights=136.0, on_top=0.0, graphs=6.0 / 512))
    assert found.given_up[0] == "graphs to 256, not 512"


def test_weights_that_fill_the_gpu_fit_with_nothing() -> None:
    with pytest.raises(CheckFailed, match="nothing fits"):
        fit(Server(weights=139.3))


def test_a_cache_that_must_hold_more_is_not_found() -> None:
    with pytest.raises(CheckFailed, match="KV tokens per rank"):
        fit(Server(), Goals(requests=100, context_length=1_000_000))


def test_requests_are_a_flag_that_stays() -> None:
    assert fit(Server(), Goals(requests=64)).best.flags["max_running_requests"] == 64
