"""The list of findings that do not make a record inexact, and entries that must never be in it."""

import json
from pathlib import Path

import pytest

from runtime.ghost.inside.answers import ANSWERS
from runtime.ghost.inside.exceptions import HARMLESS, Harmless, is_harmless

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MEASURED = {
    start["name"]
    for file in RESULTS.glob("real_starts_*.json")
    if "predicted" not in file.name
    for start in json.loads(file.read_text())["starts"]
}


@pytest.mark.parametrize("one", HARMLESS, ids=lambda one: one.name)
def test_an_exception_names_one_function_and_a_measured_start(one: Harmless) -> None:
    module, _, function = one.name.rpartition(".")
    if one.kind == "attribute":
        assert one.name.startswith("occupancy of _Z") and one.name.index("*") == len(one.name) - 1
    else:
        assert "*" not in function and function and not module.startswith("*")
    assert one.why
    assert one.proof in MEASURED


@pytest.mark.parametrize("one", HARMLESS, ids=lambda one: one.name)
def test_no_invented_answer_and_no_value_read_back_is_an_exception(one: Harmless) -> None:
    assert one.name.rpartition(".")[2] not in ANSWERS
    assert one.kind not in ("unread", "capped", "peer")


def test_another_function_of_the_same_module_is_not_excepted() -> None:
    assert is_harmless("module", "trtllm_utils.delay_kernel")
    assert not is_harmless("module", "trtllm_utils.delay")
    assert not is_harmless("stub", "trtllm_utils.delay_kernel")
