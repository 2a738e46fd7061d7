"""Which cache comes nearest to a key that no cache has, and what it was made for: only what is proven."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.cache_key import cache_key
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.nearest import nearest
from sgl_tune.keys.plan import make_plan
from tests.sgl_tune.planning import deployment as planned

QWEN = {"model_path": "Qwen/Qwen3-30B-A3B", "moe_runner_backend": "flashinfer_cutlass", "tp": 2}
TARGET = {"gpu": "h200", "arch": None}


def deployment(**flags: Any) -> Deployment:
    return planned(**{**QWEN, **TARGET, **flags})


def cached(folder: Path, made_for: Deployment, manifest: bool = False) -> str:
    """An empty cache of that deployment, where its server would look for it."""
    plan = make_plan(made_for, gpus=()).target
    for path in plan.paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}")
    if manifest:
        content = {"schema_version": 1, "environment": {}, "key_parts": list(plan.key_parts)}
        (folder / plan.folder / "sgl-tune.json").write_text(json.dumps(content))
    return plan.key


def nearest_in(folder: Path, asked: Deployment) -> str | None:
    found = nearest(asked, find_caches(folder))
    return found.says if found else None


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize(
    ("flags", "made_for"), [({"dtype": "float16"}, "dtype float16"), ({"tp": 4}, "tp 4")]
)
def test_it_is_named_either_way(tmp_path: Path, manifest: bool, flags: dict[str, Any], made_for: str) -> None:
    key = cached(tmp_path, deployment(**flags), manifest)
    said = nearest_in(tmp_path, deployment())
    if manifest and "dtype" in flags:
        made_for = "dtype torch.float16"
    assert said == f"{key}: made for {made_for}"


def test_another_gpu_is_named_by_the_folder_of_its_architecture(tmp_path: Path) -> None:
    asked = {"model_path": "zai-org/GLM-5.1-FP8", "moe_runner_backend": "flashinfer_trtllm"}
    key = cached(tmp_path, deployment(**asked, tp=4, gpu="b200"))
    assert nearest_in(tmp_path, deployment(**asked)) == f"{key}: made for tp 4, a B200 (sm100)"


def test_another_model_path_is_named_by_the_parts_in_its_manifest(tmp_path: Path) -> None:
    key = cached(tmp_path, deployment(), manifest=True)
    named = deployment(model_path="qwen/qwen3-30b-a3b")
    assert nearest_in(tmp_path, named) == f"{key}: made for model path Qwen/Qwen3-30B-A3B"


def test_a_manifest_whose_parts_do_not_make_the_key_proves_nothing(tmp_path: Path) -> None:
    cached(tmp_path, deployment(tp=4), manifest=True)
    (manifest,) = tmp_path.rglob("sgl-tune.json")
    content = json.loads(manifest.read_text())
    assert cache_key(content["key_parts"]) == manifest.parent.name
    content["key_parts"][1] = "torch.float16"
    manifest.write_text(json.dumps(content))
    assert "tp 4" in str(nearest_in(tmp_path, deployment())), "that alone makes this key"
    manifest.parent.rename(manifest.parent.with_name("0" * 16))
    assert nearest_in(tmp_path, deployment()) is None


def test_the_nearer_of_two_is_named_and_an_empty_folder_is_none(tmp_path: Path) -> None:
    cached(tmp_path, deployment(dtype="float16", tp=4), manifest=True)
    near = cached(tmp_path, deployment(tp=8))
    (tmp_path / "flashinfer/autotune/0.7.2/sm90/0123456789abcdef").mkdir()
    assert nearest_in(tmp_path, deployment()) == f"{near}: made for tp 8"
