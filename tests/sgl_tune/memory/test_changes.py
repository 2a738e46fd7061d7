"""Other starts of a server: any of its flags and variables, another GPU, another release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.ghost.gpus import gpus
from sgl_tune.asking.question import Question
from sgl_tune.errors import UsageError
from sgl_tune.memory.ghost.changes import parse_change, parse_steps
from tests.sgl_tune.asking.test_kept import SERVER

QUESTION = Question(SERVER, ("--model-path", "m", "--enable-dp-attention"), {"SGLANG_A": "1"}, gpus()["h200"])


def changed(text: str) -> Question:
    return parse_change(text).of(QUESTION)


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
    found = parse_change("gpu=b200").of(small)
    assert (found.gpu.key, found.total_bytes) == ("b200", None)


def test_another_release_needs_a_server_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_TUNE_SERVERS", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        changed("sglang=0.5.99")
    assert "sgl-tune server add 0.5.99" in str(caught.value.remedy)


@pytest.mark.parametrize("text", ["lm-head-in-autotune", "graphs-ascending+tp=2"])
def test_what_changes_code_is_for_the_core(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_change(text)
    assert "--core" in str(caught.value.remedy)


@pytest.mark.parametrize("text", ["", "=", "tp =4", "--tp=4", "SGLANG_X", "../x"])
def test_what_is_neither_flag_nor_variable_is_named(text: str) -> None:
    with pytest.raises(UsageError):
        parse_change(text)


def test_a_sweep_goes_over_any_flag() -> None:
    steps = parse_steps("some-size=1:3:1")
    assert [step.of(QUESTION).argv[-2:] for step in steps] == [("--some-size", f"{n}") for n in (1, 2, 3)]
