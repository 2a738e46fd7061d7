"""Servers of dots.ocr that end, and of GLM-OCR that see otherwise than their model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA

PUBLISHED = json.loads((DATA / "published_families.json").read_text())


def _deployment(folder: Path, told: dict[str, Any], release: str = "0.5.23", **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    flags = {"model_path": str(folder), "sglang_version": release, "arch": "sm90", **flags}
    return resolve_deployment(ServerFlags(**flags), environ={})


@pytest.mark.parametrize("ties", [False, True])
def test_dots_has_no_embedding_to_tie_its_head_to(ties: bool, tmp_path: Path) -> None:
    told = {**PUBLISHED["rednote-hilab/dots.ocr"], "tie_word_embeddings": ties}
    found = never_starts(_deployment(tmp_path, told))
    assert bool(found) is ties and (found is None or "dots.ocr finds no embedding" in found)


@pytest.mark.parametrize(
    "name",
    [
        *("rednote-hilab/dots.ocr", "stepfun-ai/Step3-VL-10B"),
        *("deepseek-ai/DeepSeek-OCR", "deepseek-ai/DeepSeek-OCR-2"),
    ],
)
def test_they_have_no_stages(name: str, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, PUBLISHED[name], pp=2))
    assert found is not None and "no pipeline stages" in found


@pytest.mark.parametrize(
    ("name", "release", "cuts"),
    [
        ("zai-org/GLM-OCR", "0.5.19", False),
        ("zai-org/GLM-OCR", "0.5.20", True),
        ("a/glm-ocr-told-its-projection", "0.5.23", False),
    ],
)
def test_what_joins_glms_images_is_cut_since_a_release(
    name: str, release: str, cuts: bool, tmp_path: Path
) -> None:
    unknown = _deployment(tmp_path, PUBLISHED[name], release).shape.unknown
    assert bool(unknown) is cuts and ("images are cut" in unknown) is cuts
