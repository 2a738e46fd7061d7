"""Look-ups of Triton configurations and MoE layers in a record: read from JSON unchanged, and checked."""

import json
from typing import Any

import pytest

from runtime.record.events import record_of
from runtime.record.record import NotARecord, Record
from tests.record.test_record import ASKED, ENDED, READY

FILE = "/server/configs/triton_3_6_0/E=8,N=4,device_name=NVIDIA_H200.json"
GIVEN = {"E": 8, "N": 4, "dtype": None, "down_moe": False}
LOOKUP = {"event": "config", "kind": "moe", "asked": FILE, "found": "", "triton": "3.6.0", "given": GIVEN}
TOKENS = {"tensor": {"dtype": "bfloat16", "shape": [8, 4], "stride": [4, 1], "offset": 0, "storage": 0}}
LAYER: dict[str, Any] = {
    "event": "layer",
    "named": {"hidden_states": TOKENS, "activation": "silu", "block_shape": [128, 128], "b1": None},
    "storages": [{"bytes": 64, "device": "cuda"}],
    "files": [FILE],
    "unreplayable": "",
}


def changed(**parts: Any) -> str:
    data = json.loads(record_of(ASKED, [LOOKUP, LAYER, READY, ENDED]).to_json())
    for name, part in parts.items():
        data[name][0] |= part
    return json.dumps(data)


def test_lookups_and_layers_go_through_json_unchanged() -> None:
    made = record_of(ASKED, [LOOKUP, LAYER, READY, ENDED])
    assert (made.configs[0].asked, made.layers[0].files) == (FILE, (FILE,))
    assert Record.from_json(made.to_json()) == made


def test_a_record_without_them_is_read() -> None:
    data = json.loads(record_of(ASKED, [READY, ENDED]).to_json())
    del data["configs"], data["layers"]
    assert Record.from_json(json.dumps(data)).configs == ()


@pytest.mark.parametrize(
    "parts",
    [
        {"configs": {"kind": "pickle"}},
        {"configs": {"asked": 3}},
        {"configs": {"more": 1}},
        {"layers": {"named": {"w1": {"call": ["os:system", "true"]}}}},
        {"layers": {"named": {"hidden_states": {"tensor": {**TOKENS["tensor"], "shape": [800, 4]}}}}},
        {"layers": {"storages": [{"bytes": 1 << 50, "device": "cuda"}]}},
        {"layers": {"files": FILE}},
    ],
)
def test_a_record_that_says_anything_else_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(NotARecord):
        Record.from_json(changed(**parts))
