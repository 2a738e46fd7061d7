"""Muse Glimmer: what its file has to tell, and which of its servers end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

MUSE = json.loads(PUBLISHED.read_text())["a/muse-glimmer-30b-as-its-classes-have-it"]


def _told(*left_out: str, text: Any = None, vision: Any = None, **whole: Any) -> dict[str, Any]:
    sections = {
        "text_config": {**MUSE["text_config"], **(text or {})},
        "vision_config": {**MUSE["vision_config"], **(vision or {})},
    }
    told = {**MUSE, **sections, **whole}
    return {name: value for name, value in told.items() if name not in left_out}


def test_as_its_classes_have_it_each_fourth_layer_sees_all_and_does_not_turn() -> None:
    model = model_config(MUSE)
    assert not model.obstacles and model.encoder is not None
    assert [layer for layer, kind in enumerate(model.attention_kinds) if kind == "full"] == [*range(3, 52, 4)]
    full, behind = model.attention["full"], model.attention["sliding"]
    assert full.rope is None and behind.rope is not None and behind.window == 2048
    assert full.scale == behind.scale == 3.87 * 128**-0.5


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (_told("text_config"), "muse_glimmer without a text_config"),
        (_told("vision_config"), "muse_glimmer without a vision_config"),
        (_told(vision={"rope_parameters": None}), "vision_config: rope_parameters is missing"),
        (_told(vision={"layer_types": None}), "vision_config: layer_types is missing"),
        (_told(vision={"head_dim": 64}), "heads of 1536: releases of SGLang differ"),
        (_told(use_qk_norm=False), "use_qk_norm is False: this runtime knows True alone"),
        (_told(text={"layer_rope_theta": [0]}), "layer_rope_theta is"),
        (_told(architectures=["MuseGlimmerForCausalLM"]), "architectures names MuseGlimmerForCausalLM"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(told)


@pytest.mark.parametrize("told", [_told(tie_word_embeddings=True), _told(text={"tie_word_embeddings": True})])
def test_a_head_that_is_the_embedding_is_named(told: dict[str, Any]) -> None:
    (said,) = model_config(told).obstacles
    assert "tie_word_embeddings is True" in said


@pytest.mark.parametrize(
    ("flags", "why"),
    [({"tp": 8}, None), ({"sglang_version": "0.5.18"}, None), ({"pp": 2}, "no pipeline stages")],
)
def test_which_servers_end(flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MUSE))
    asked = {"model_path": str(tmp_path), "sglang_version": "0.5.23", "arch": "sm90", **flags}
    found = never_starts(resolve_deployment(ServerFlags(**asked), environ={}))
    assert (found is None) if why is None else (found is not None and why in found)
