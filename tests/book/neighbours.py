"""Which cache is taken for the nearest to a deployment's key, by each way in which it is another's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgl_tune.cache.layouts import find_caches
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.nearest import nearest
from sgl_tune.keys.plan import make_plan
from tests.book.rows import Row

_ASKED: dict[str, Any] = {
    **{"model_path": "Qwen/Qwen3-30B-A3B", "moe_runner_backend": "flashinfer_cutlass", "tp": 2},
    **{"gpu": "h200", "sglang_version": "0.5.23", "flashinfer_version": "0.7.2"},
}
_B200 = {"gpu": "b200"}
_MADE_FOR: tuple[dict[str, Any], ...] = (
    {"tp": 8, "ep": 8}, {"pp": 2, "sglang_version": "0.5.13"}, {**_B200, "tp": 1}, {"tp": 32},
    {**_B200, "quantization": "fp8", "moe_runner_backend": "flashinfer_trtllm"},
    {"flashinfer_version": "0.6.18"}, {"dtype": "float16", "tp": 4},
    {"sglang_version": "0.5.14", "flashinfer_version": "0.6.12", "tp": 4},
    {**_B200, "moe_runner_backend": "flashinfer_trtllm_routed"}, {"dtype": "float16", "tp": 4, "pp": 2},
    {"sglang_version": "0.5.17"}, {**_B200, "sglang_version": "0.5.17", "dtype": "float16"},
)  # fmt: skip


def neighbours() -> Iterator[Row]:
    asked = _deployment()
    for changes in _MADE_FOR:
        for manifest in (True, False):
            with TemporaryDirectory() as folder:
                _cache(Path(folder), _deployment(**changes), manifest)
                found = nearest(asked, find_caches(Path(folder)))
            yield f"{changes} {'with' if manifest else 'without'} a manifest", found and found.says


def _deployment(**flags: Any) -> Deployment:
    return resolve_deployment(ServerFlags(**{**_ASKED, **flags}), environ={})


def _cache(folder: Path, made_for: Deployment, manifest: bool) -> None:
    """Files that hold nothing, where its server would look for them."""
    plan = make_plan(made_for, gpus=()).target
    for path in plan.paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}")
    if manifest and plan.paths:
        content = {"schema_version": 1, "environment": {}, "key_parts": list(plan.key_parts)}
        (folder / plan.folder / "sgl-tune.json").write_text(json.dumps(content))


NEIGHBOURS_OF = {"neighbours": neighbours}
