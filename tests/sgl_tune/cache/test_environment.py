"""The target: from `sgl-tune env`, from FlashInfer's strings alone, or unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.flashinfer.versions import NEWEST
from sgl_tune.cache.loader import metadata_mismatches
from sgl_tune.errors import UsageError
from sgl_tune.verify.environment import Target, looking_up, other_driver, own_environment, read_target
from tests.sgl_tune.cache.corpus import TARGET


def _write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "env.json"
    path.write_text(json.dumps(content))
    return path


def test_the_output_of_env_is_a_target_and_so_are_the_strings_of_a_version(tmp_path: Path) -> None:
    target = read_target(_write(tmp_path, {"metadata": TARGET, "arch": "sm90", "driver": "580.1", "x": 1}))
    assert (target.metadata, target.arch, target.driver) == (TARGET, "sm90", "580.1")
    assert target.flashinfer == "0.7.2"
    target = read_target(_write(tmp_path, TARGET))
    assert (target.metadata, target.arch, target.driver) == (TARGET, "sm90", None)


@pytest.mark.parametrize(
    "content",
    [
        [],
        7,
        {},
        {"metadata": []},
        {"metadata": None},
        {"metadata": {**TARGET, "gpu": 7}},
        {"metadata": TARGET, "sglang": "none"},
    ],
)
def test_anything_else_is_refused_with_the_way_out(content: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"env\.json") as caught:
        read_target(_write(tmp_path, content))
    assert "sgl-tune env" in (caught.value.remedy or "")


@pytest.mark.parametrize("saved", [TARGET, {**TARGET, "gpu": "*"}, {**TARGET, "cudnn_version": "unknown"}])
def test_a_complete_file_matches_its_own_environment(saved: dict[str, str]) -> None:
    assert metadata_mismatches(saved, own_environment(saved, NEWEST), NEWEST) == ({}, {})


def test_what_a_file_leaves_out_matches_nowhere() -> None:
    saved = {**TARGET, "gpu": None, "cuda_version": ["13.0"]}
    hard, soft = metadata_mismatches(saved, own_environment(saved, NEWEST), NEWEST)
    assert (list(hard), list(soft)) == (["cuda_version"], ["gpu"])


@pytest.mark.parametrize(
    ("saved", "target", "version"),
    [
        (TARGET, {**TARGET, "flashinfer_version": "0.6.14"}, "0.6.14"),
        ({"flashinfer_version": "0.6.12"}, None, "0.6.12"),
        ({"flashinfer_version": "*"}, None, "0.7.2"),
        ({"flashinfer_version": 7}, None, "0.7.2"),
        (None, None, "0.7.2"),
    ],
)
def test_which_flashinfer_looks_the_entries_up(saved: Any, target: Any, version: str) -> None:
    flashinfer = target["flashinfer_version"] if target else None
    assert looking_up(saved, Target(target, "", flashinfer)) == version


@pytest.mark.parametrize(
    ("tuned_on", "serving", "said"),
    [("570.1", "580.1", True), ("580.1", "580.1", False), (None, "580.1", False), ("580.1", None, False)],
)
def test_another_driver_is_mentioned(tuned_on: str | None, serving: str | None, said: bool) -> None:
    found = other_driver(tuned_on, Target(TARGET, "", driver=serving))
    assert [item.code for item in found] == (["other-driver"] if said else [])
