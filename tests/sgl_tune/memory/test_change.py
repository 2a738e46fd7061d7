"""Other starts of a server: any of its flags and variables, another GPU, another release."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.ghost.gpus import gpus
from sgl_tune.asking.question import Question
from sgl_tune.errors import UsageError
from sgl_tune.memory.by_server import changed as changed_by
from sgl_tune.memory.core.by_core import taken
from sgl_tune.memory.starting import LM_HEAD, parse_change, parse_sweep
from tests.sgl_tune.asking.test_kept import SERVER

QUESTION = Question(SERVER, ("--model-path", "m", "--enable-dp-attention"), {"SGLANG_A": "1"}, gpus()["h200"])


def changed(text: str) -> Question:
    return changed_by(QUESTION, parse_change(text))


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("dp=4", ["--dp", "4"]),
        ("tp=4+ep=4", ["--tp", "4", "--ep", "4"]),
        ("a-flag-nobody-knows=x", ["--a-flag-nobody-knows", "x"]),
        ("cuda-graph-bs=1 2 4", ["--cuda-graph-bs", "1", "2", "4"]),
        ("no-graphs", ["--disable-cuda-graph"]),
        ("disable-radix-cache", ["--disable-radix-cache"]),
        ("disable-radix-cache=true", ["--disable-radix-cache"]),
    ],
)
def test_a_flag_is_passed_on_as_it_is(text: str, added: list[str]) -> None:
    assert list(changed(text).argv) == [*QUESTION.argv, *added]


def test_a_flag_can_be_taken_away() -> None:
    assert changed("enable-dp-attention=false").argv == ("--model-path", "m")


def test_a_variable_is_set_for_that_start() -> None:
    assert changed("SGLANG_B=2").environment == {"SGLANG_A": "1", "SGLANG_B": "2"}


def test_another_gpu_has_its_own_memory() -> None:
    small = replace(QUESTION, total_bytes=1 << 30)
    found = changed_by(small, parse_change("gpu=b200"))
    assert (found.gpu.key, found.total_bytes) == ("b200", None)


def test_another_release_needs_a_server_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_TUNE_SERVERS", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        changed("sglang=0.5.99")
    assert "sgl-tune server add 0.5.99" in str(caught.value.remedy)


@pytest.mark.parametrize("text", ["lm-head-in-autotune", "graphs-ascending+tp=2"])
def test_what_changes_code_is_for_the_core(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(text)
    assert "--server core" in str(caught.value.remedy)


@pytest.mark.parametrize("text", ["", "=", "tp =4", "--tp=4", "SGLANG_X", "../x"])
def test_what_is_neither_flag_nor_variable_is_named(text: str) -> None:
    with pytest.raises(UsageError):
        parse_change(text)


def test_a_sweep_goes_over_any_flag() -> None:
    steps = parse_sweep("some-size=1:3:1")
    ends = [changed_by(QUESTION, step).argv[-2:] for step in steps]
    assert ends == [("--some-size", f"{n}") for n in (1, 2, 3)]


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
    assert taken(parse_change(text)) == ((), {field: value})


def test_parts_are_joined() -> None:
    behaviours, flags = taken(parse_change("lm-head-in-autotune+mem-fraction-static=0.86+dp=4"))
    assert behaviours == (LM_HEAD,) and flags == {"mem_fraction_static": 0.86, "dp": 4}


@pytest.mark.parametrize("text", ["", "lm-head", "dp", "dp=four", "tp=", "no-such-flag=1", "dp=4+"])
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no"):
        taken(parse_change(text))


def test_a_sweep_names_each_step_as_typed() -> None:
    steps = parse_sweep("mem-fraction-static=0.80:0.94:0.01")
    assert len(steps) == 15
    assert steps[0].name == "mem-fraction-static=0.80"
    assert taken(steps[-1])[1] == {"mem_fraction_static": 0.94}


@pytest.mark.parametrize(
    "text", ["0.8:0.9:0.1", "dp=1:8", "dp=8:1:1", "dp=1:8:0", "dp=1:100000:1", "dp=1:" + "9" * 400 + ":1"]
)
def test_a_sweep_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(text)
