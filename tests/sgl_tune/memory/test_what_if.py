"""What-ifs as typed: behaviours, flags, both; sweeps; and what is refused."""

from __future__ import annotations

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.memory.what_if import LM_HEAD, parse_sweep, parse_what_if


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("dp=4", "dp", 4),
        ("tensor-parallel-size=16", "tp", 16),
        ("mem-fraction-static=0.86", "mem_fraction_static", 0.86),
        ("kv-cache-dtype=fp8_e4m3", "kv_cache_dtype", "fp8_e4m3"),
        ("enable-dp-attention=false", "enable_dp_attention", False),
        ("no-graphs", "disable_cuda_graph", True),
    ],
)
def test_a_flag_is_set_by_any_of_its_names(text: str, field: str, value: object) -> None:
    assert parse_what_if(text).flags == {field: value}


def test_parts_are_joined() -> None:
    what_if = parse_what_if("lm-head-in-autotune+mem-fraction-static=0.86+dp=4")
    assert what_if.behaviours == {LM_HEAD}
    assert what_if.flags == {"mem_fraction_static": 0.86, "dp": 4}


@pytest.mark.parametrize("text", ["", "lm-head", "dp", "dp=four", "tp=", "no-such-flag=1", "dp=4+"])
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--what-if"):
        parse_what_if(text)


def test_a_sweep_names_each_step_as_typed() -> None:
    steps = parse_sweep("mem-fraction-static=0.80:0.94:0.01")
    assert len(steps) == 15
    assert steps[0].name == "mem-fraction-static=0.80" and steps[-1].flags == {"mem_fraction_static": 0.94}


def test_a_sweep_of_whole_numbers() -> None:
    steps = parse_sweep("max-running-requests=512:2048:512")
    assert [step.flags["max_running_requests"] for step in steps] == [512, 1024, 1536, 2048]


@pytest.mark.parametrize(
    "text",
    [
        "0.8:0.9:0.1",
        "dp=1:8",
        "dp=8:1:1",
        "dp=1:8:0",
        "nothing=1:2:1",
        "dp=1:100000:1",
        "dp=1:" + "9" * 400 + ":1",
    ],
)
def test_a_sweep_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(text)


def test_a_flag_that_takes_no_value_stands_alone() -> None:
    assert parse_what_if("enable-dp-attention+tp=4").flags == {"enable_dp_attention": True, "tp": 4}
    assert parse_what_if("gpu=h200").flags == {"gpu": "h200"}
    with pytest.raises(UsageError, match="'tp' is neither"):
        parse_what_if("tp")
