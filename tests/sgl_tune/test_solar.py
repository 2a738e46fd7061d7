"""Solar Pro: what its file has to tell, and which of its servers end, or have a key alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

SOLAR = json.loads(PUBLISHED.read_text())["a/solar-pro-preview-from-memory"]


def _deployment(folder: Path, **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(SOLAR))
    asked = {"model_path": str(folder), "sglang_version": "0.5.23", "arch": "sm90", "tp": 2, **flags}
    return resolve_deployment(ServerFlags(**asked), environ={})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"bskcn_2": None}, "bskcn_2 is missing: what it is then, the checkpoint's own class says"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is missing"),
        ({"bskcn_1": [20, 12]}, "bskcn_1 is .*: layers in their order are needed"),
        ({"bskcn_3": 16}, "bskcn_3 is 16"),
        ({"bskcn_tv": 0.8}, "bskcn_tv is 0.8: two numbers are needed"),
        ({"bskcn_tv": [0.9, "0.8"]}, "bskcn_tv is '0.8'"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**SOLAR, **told})


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, None),
        ({"tp": 1, "sglang_version": "0.5.22"}, None),
        ({"sglang_version": "0.5.21"}, "before 0.5.22 SGLang's Solar ends as it makes its layers"),
        ({"dp": 2, "enable_dp_attention": True}, "splits its heads over all 2 ranks"),
    ],
)
def test_which_servers_end(flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, **flags))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"pp": 2}, "--pp"),
        ({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}, "drafts"),
    ],
)
def test_what_its_class_is_not_written_for_has_a_key_alone(
    not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    refused = _deployment(tmp_path, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert f"solar does not go with {said}" in refused.shape.unknown
