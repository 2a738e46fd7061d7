"""Recorded calls: what data may say of a call, and that a foreign record can name nothing else."""

import json
from typing import Any

import pytest

from runtime.record.arguments import LARGEST
from runtime.record.calls import Call
from runtime.record.checked import read
from runtime.record.events import NO_DATA, record_of
from runtime.record.record import NotARecord, Record
from tests.record.test_record import ASKED, ENDED, READY

KEY = "('op', 'Runner', ((8, 4),), ())"
TENSOR = {"tensor": {"dtype": "bfloat16", "shape": [8, 4], "stride": [4, 1], "offset": 0, "storage": 0}}
MADE: dict[str, Any] = {"function": "a:B", "arguments": [], "named": {}, "storages": []}
CALL: dict[str, Any] = {
    "event": "call",
    "function": "fused_moe.core:cutlass_fused_moe",
    "mode": "tune",
    "phase": "autotune",
    "arguments": [TENSOR],
    "named": {"tp_size": 1, "activation": {"enum": ["tllm_enums:ActivationType", "Swiglu"]}},
    "storages": [{"bytes": 64, "device": "cuda"}],
    "contexts": [{"name": "autotune", "arguments": {"tune_mode": True, "skip_ops": {"set": ["x"]}}}],
    "lookups": [{"op": "op", "runners": ["Runner"], "keys": [[8, KEY]], "policy": ["a", None]}],
    "unreplayable": "",
}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(CALL))
    inner: Any = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return data


def test_a_call_of_the_stream_goes_through_json_unchanged() -> None:
    made = record_of(ASKED, [CALL, READY, ENDED])
    assert made.calls[0].keys == (KEY,)
    assert made.calls[0].contexts[0].arguments["skip_ops"] == {"set": ["x"]}
    assert Record.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    "name",
    [
        "jit.core:os.path.join",
        "__main__:cli",
        "fused_moe.core:cutlass_fused_moe.__globals__",
        "..os:system",
        "fused_moe.core",
        "fused_moe.core:a.b.c",
        "",
        "a:b" * 200,
    ],
)
def test_a_function_is_named_below_flashinfer_and_by_its_own_path_alone(name: str) -> None:
    with pytest.raises(TypeError, match=r"call.function is not a name in FlashInfer"):
        read(Call, {**CALL_ALONE, "function": name}, "call")


CALL_ALONE = {name: value for name, value in CALL.items() if name != "event"}


@pytest.mark.parametrize(
    "value",
    [
        {"code": "print()"},
        {"tensor": 1},
        {"tensor": {**TENSOR["tensor"], "shape": [1 << 60, 4]}},
        {"tensor": {**TENSOR["tensor"], "shape": [-8, 4]}},
        {"tensor": {**TENSOR["tensor"], "shape": [800, 4]}},
        {"tensor": {**TENSOR["tensor"], "storage": 1}},
        {"tensor": {**TENSOR["tensor"], "dtype": "bfloat16.__class__"}},
        {"tensor": {**TENSOR["tensor"], "values": [1.5]}},
        {"tensor": {**TENSOR["tensor"], "values": [1] * 5000}},
        {"tuple": 1},
        {"dict": [[1]]},
        {"float": "1; import os"},
        {"device": "meta.x"},
        {"enum": ["os:path", 1]},
        {"enum": ["a__b:C", "D"]},
        {"fields": ["a:B", [1]]},
        {"made": {"function": "a:B"}},
        {"tensor": {**TENSOR["tensor"], "shape": [1 << 49], "stride": [0]}},
        {"made": {**MADE, "storages": [{"bytes": 1 << 50, "device": "cuda"}]}},
        {"made": {**MADE, "storages": [{"bytes": 64, "device": "disk"}]}},
        {"made": {**MADE, "storages": [{"bytes": 64}]}},
        {"tuple": [], "set": []},
        {},
    ],
)
def test_an_argument_of_another_kind_is_no_record(value: Any) -> None:
    data = json.loads(record_of(ASKED, [CALL, READY, ENDED]).to_json())
    data["calls"][0]["arguments"] = [value]
    with pytest.raises(NotARecord, match=r"call\.arguments"):
        Record.from_json(json.dumps(data))


def test_an_argument_that_is_too_deep_is_no_record() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(TypeError, match="too deep"):
        read(Call, {**CALL_ALONE, "arguments": [value]}, "call")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mode",), "run"),
        (("storages", 0, "device"), "disk"),
        (("contexts", 0, "name"), "exec"),
        (("contexts", 0, "arguments"), {"tune_mode": {"code": 1}}),
        (("contexts", 0, "arguments"), {"cache": "/any/path"}),
        (("contexts", 0), {"name": "autotune_v2", "arguments": {"cache_root": "/any/path"}}),
        (("contexts", 0), {"name": "autotune_v2", "arguments": {"persistent_cache": True}}),
        (("storages", 0, "bytes"), -1),
        (("storages", 0, "bytes"), 1 << 60),
        (("storages",), [{"bytes": LARGEST, "device": "cuda"}, {"bytes": 1, "device": "cuda"}]),
        (("named",), {"made": {"made": {**MADE, "storages": [{"bytes": LARGEST, "device": "cuda"}]}}}),
        (("lookups", 0, "runners"), []),
        (("lookups", 0, "policy"), [[]]),
        (("lookups", 0, "keys"), [["8", KEY]]),
    ],
)
def test_a_call_that_does_not_fit_is_named(path: tuple[Any, ...], value: Any) -> None:
    data = {name: one for name, one in changed(path, value).items() if name != "event"}
    with pytest.raises(TypeError, match=r"call"):
        read(Call, data, "call")


@pytest.mark.parametrize("name", ["autotune", "autotune_v2"])
def test_a_context_keeps_the_arguments_that_say_how_it_tunes(name: str) -> None:
    given = {"tuning_buckets": {"tuple": [8]}, "round_up": True, "skip_ops": "op"}
    made = record_of(ASKED, [{**CALL, "contexts": [{"name": name, "arguments": given}]}, READY, ENDED])
    assert made.calls[0].contexts[0].arguments == given and not made.calls[0].unreplayable


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("function", "fused_moe.core:A.B.C"),
        ("function", "fused_moe.core:made.<locals>.inner"),
        ("function", "fused_moe.core:__made"),
        ("arguments", [{"tensor": {**TENSOR["tensor"], "shape": [1] * 17, "stride": [1] * 17}}]),
        ("contexts", [{"name": "autotune", "arguments": {"new": 1}}]),
        ("lookups", [{**CALL["lookups"][0], "policy": [["cold"]]}]),
    ],
)
def test_a_call_of_an_odd_form_is_kept_for_what_it_asks(name: str, value: Any) -> None:
    made = record_of(ASKED, [{**CALL, name: value}, CALL, READY, ENDED])
    odd, other = made.calls
    assert (odd.unreplayable, odd.keys, odd.arguments) == (NO_DATA, (KEY,), ())
    assert not other.unreplayable and made.ending.how == "ready"
    assert Record.from_json(made.to_json()) == made
