"""A start's events become a record; a record goes through JSON unchanged; foreign JSON is checked."""

import json
from typing import Any

import pytest

from runtime.record.events import record_of
from runtime.record.parts import Asked
from runtime.record.record import NotARecord, Record

ASKED = Asked(("--model-path", "m"), 0, "h200", "ghost", "3.11.7", "13.0", {"sglang": "0.5.17"})
MEMORY = {"allocated": 10, "reserved": 20, "peak": 15, "reserved_peak": 20, "free": 70, "total": 100}
AROUND = {"allocated_before": 0, "least_free": 65}
WEIGHTS = {"event": "phase", "name": "weights", "depth": 1, "seconds": 0.5, **MEMORY, **AROUND}
READY = {
    "event": "ready",
    "kv_tokens": 1000,
    "max_running_requests": None,
    "mem_fraction_static": 0.9,
    "chunked_prefill_size": 8192,
    "context_length": 4096,
    **MEMORY,
}
DIED = {"event": "died", "phase": "weights", "type": "OutOfMemoryError", "text": "Tried", "stack": ["a:1 f"]}
ENDED = {"event": "ended", "code": 0, "cpu": 2, "rss": 4096}


def record(*events: dict[str, Any]) -> Record:
    return record_of(ASKED, events)


def test_a_ready_start_has_sizes_and_its_phases() -> None:
    made = record({"event": "asked", "arguments": {"tp_size": 1}}, WEIGHTS, READY, ENDED)
    assert made.ending.how == "ready"
    assert made.sizes is not None and made.sizes.kv_tokens == 1000
    assert made.phase("weights") == made.phases[0]
    assert made.phases[0].outside == 10
    assert made.arguments == {"tp_size": 1}
    assert made.exact


def test_the_first_death_is_the_ending() -> None:
    made = record(DIED, {**DIED, "phase": "start"}, ENDED)
    assert (made.ending.how, made.ending.phase, made.ending.text) == ("died", "weights", "Tried")


def test_a_stream_that_stops_is_no_answer() -> None:
    assert record(WEIGHTS).ending.how == "broken"
    assert record(WEIGHTS, {**ENDED, "code": -9}).ending.how == "broken"


def test_a_record_goes_through_json_unchanged() -> None:
    kernel = {"event": "kernel", "library": "triton", "name": "k"}
    special = {**kernel, "digest": "ab", "target": "cuda:90", "shared": 1024}
    made = record(WEIGHTS, kernel, special, kernel, READY, ENDED)
    assert [(one.digest, one.shared) for one in made.kernels] == [("", 0), ("ab", 1024)]
    assert Record.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema_version",), 99, "schema_version"),
        (("asked", "rank"), "0", "record.asked.rank is not int"),
        (("asked", "rank"), True, "record.asked.rank is not int"),
        (("asked", "argv"), "--x", "record.asked.argv is not a list"),
        (("phases",), [1], "record.phases[0] is not an object"),
        (("phases",), {}, "record.phases is not a list"),
        (("new",), 1, "record is not without 'new'"),
        (("ending",), {}, "record.ending.how is missing"),
        (("kernels",), [["triton"]], "record.kernels[0] is not an object"),
    ],
)
def test_a_foreign_record_that_does_not_fit_is_named(path: tuple[str, ...], value: Any, said: str) -> None:
    data = json.loads(record(READY, ENDED).to_json())
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(NotARecord) as caught:
        Record.from_json(json.dumps(data))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"schema_version": 3}', "\x00", "[" * 100000])
def test_other_text_is_no_record(text: str) -> None:
    with pytest.raises(NotARecord):
        Record.from_json(text)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("where", ["resolved", "calls"])
def test_data_that_is_too_deep_is_no_record(where: str) -> None:
    data = json.loads(record(READY, ENDED).to_json())
    call = {"function": "a:b", "mode": "tune", "phase": "", "named": {}, "unreplayable": "odd"}
    empty: dict[str, Any] = {"storages": [], "contexts": [], "lookups": []}

    def text(levels: int) -> str:
        deep = [nested(levels)]
        told = {"arguments": {"x": deep}} if where == "resolved" else [{**call, **empty, "arguments": deep}]
        return json.dumps({**data, where: told})

    assert Record.from_json(text(60)).to_json()
    with pytest.raises(NotARecord, match=rf"record\.{where}.*arguments.* is not at most 64 levels deep"):
        Record.from_json(text(900))


@pytest.mark.parametrize("name", [*MEMORY, *AROUND])
def test_a_phase_has_no_negative_bytes(name: str) -> None:
    data = json.loads(record(WEIGHTS, READY, ENDED).to_json())
    data["phases"][0][name] = -1
    with pytest.raises(NotARecord, match="phase is not of 0 bytes or more"):
        Record.from_json(json.dumps(data))


def test_a_start_that_was_asked_to_stop_has_what_was_settled_there() -> None:
    gate = {"tunes": True, "file": "flashinfer/autotune/0.7.2/sm90/ab/rank_tp0_pp0_dp0.json"}
    settled = {
        "config_class": "LlamaConfig",
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8_e4m3",
        "context_length": 4096,
        "attn_dp_size": 1,
        "decode_graphs": [1, 2],
        "prefill_graphs": [],
        "most_requests": 2048,
        "gate": gate,
        "draft": None,
    }
    made = record({"event": "settled", **settled}, {"event": "stopped", "phase": "gates"}, ENDED)
    assert (made.ending.how, made.ending.phase) == ("stopped", "gates")
    assert made.settled is not None and made.settled.gate.tunes and made.settled.decode_graphs == (1, 2)
    assert Record.from_json(made.to_json()) == made
