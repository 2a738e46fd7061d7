"""Layers under every format: our rows beside SGLang 0.5.23's own create_weights, as recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle.weights import LISTED_RECORDED, METHODS, agrees, ours, recorded, theirs

PAIRS = recorded()


@pytest.mark.parametrize("what", METHODS)
def test_a_layers_tensors_are_those_that_sglang_creates(what: str) -> None:
    wrong = [(case, answer) for case, answer in PAIRS if case["what"] == what and not agrees(case, answer)]
    assert wrong == [], f"{len(wrong)}, the first of which is {ours(wrong[0][0])} here"


def test_every_format_was_asked_for_linear_layers_and_experts() -> None:
    asked = Counter((case["what"], "experts" in case) for case, _ in PAIRS)
    assert {what for what, _ in asked} == set(METHODS) and min(asked.values()) >= 10


def test_what_sglang_refuses_is_refused() -> None:
    refused = [case for case, answer in PAIRS if "refused" in answer]
    assert len(refused) >= 20
    assert all(isinstance(ours(case), str) for case in refused)


def test_a_list_leaves_plain_what_sglang_leaves_plain() -> None:
    pairs = recorded(LISTED_RECORDED)
    wrong = [(case, answer, ours(case)) for case, answer in pairs if not agrees(case, answer)]
    assert wrong == [], f"{len(wrong)}, as {wrong[0]}"
    made = [theirs(case, answer) for case, answer in pairs]
    plain = [tensors for tensors in made if tensors and {dtype for _, dtype, _ in tensors} == {"bfloat16"}]
    assert len(plain) > 60 and len(pairs) - len(plain) > 120
