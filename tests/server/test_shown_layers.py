"""Which classes show a draft what their layers make of tokens, as each release's own classes have it."""

from __future__ import annotations

import json

import pytest

from runtime.server.releases import RELEASES
from runtime.server.shown_layers import shows_layers
from runtime.server.told_experts import tells_experts
from runtime.server.version_number import number
from tests.oracle.shown import RECORDED

FOUND = json.loads(RECORDED.read_text())
_NO_TARGETS = ("NextN", "MTP", "Eagle", "Eagle3", "AssistantForCausalLM", "EmbeddingGemmaModel")


@pytest.mark.parametrize("algorithm", ["EAGLE3", "DFLASH", "DSPARK"])
def test_as_its_class_has_it(algorithm: str) -> None:
    for release in RELEASES:
        asked = {one for one, since in FOUND.items() if number(since["asked"]) <= release.number}
        shown = {one for one in asked if number(FOUND[one].get(algorithm, "99.0.0")) <= release.number}
        ours = {one for one in asked if shows_layers(one, algorithm, release.number)}
        assert ours == {one for one in shown if not one.endswith(_NO_TARGETS)}, release.version


def test_classes_tell_their_experts_as_they_do() -> None:
    for release in RELEASES:
        asked = {one for one, since in FOUND.items() if number(since["asked"]) <= release.number}
        told = {one for one in asked if number(FOUND[one].get("EPLB", "99.0.0")) <= release.number}
        ours = {one for one in asked if tells_experts(one, release.number)}
        left_out = {one for one in told if one.endswith(_NO_TARGETS) or one.startswith("Transformers")}
        assert ours == told - left_out, release.version


def test_all_others_show_what_every_class_does() -> None:
    assert shows_layers("MixtralForCausalLM", "EAGLE", RELEASES[-1].number)
