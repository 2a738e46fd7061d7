"""Which servers of dots.note start, and which of them are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA

PUBLISHED = json.loads((DATA / "published_families.json").read_text())
PLAIN, SPARSE = (
    PUBLISHED[f"a/dots-note-{one}"] for one in ("of-the-sizes-that-sglang-takes", "with-an-indexer")
)
STARTS = {"attention_backend": "fa3", "page_size": 64, "tp": 4}


def _deployment(folder: Path, told: dict[str, Any], release: str = "0.5.23", **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    flags = {"model_path": str(folder), "sglang_version": release, "arch": "sm90", **flags}
    return resolve_deployment(ServerFlags(**flags), environ={})


@pytest.mark.parametrize("told", [PLAIN, SPARSE])
@pytest.mark.parametrize("release", ["0.5.19", "0.5.23"])
def test_on_fa3_with_pages_of_64_it_starts(told: dict[str, Any], release: str, tmp_path: Path) -> None:
    found = _deployment(tmp_path, told, release, **STARTS)
    assert never_starts(found) is None and not found.shape.unknown


@pytest.mark.parametrize(
    ("told", "flags", "said"),
    [
        (PLAIN, {"page_size": 1}, "--page-size 64"),
        (PLAIN, {"attention_backend": "triton"}, "prefill on fa3 or fa4, and not on triton"),
        (SPARSE, {"attention_backend": None, "page_size": None}, "and not on dsa"),
        (PLAIN, {"dtype": "float16"}, "in bfloat16 alone"),
        (PLAIN, {"tp": 64}, "32 heads cannot be split over 64 ranks"),
        ({**PLAIN, "audio_config": None}, {}, "audio_config is missing"),
        (
            {**PLAIN, "layer_types": ["full_attention"] * 15 + ["sliding_attention"] * 15},
            {"pp": 2},
            "stage 0",
        ),
    ],
)
def test_others_end(told: dict[str, Any], flags: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, told, **{**STARTS, **flags}))
    assert found is not None and said in found


@pytest.mark.parametrize(("told", "page"), [(PLAIN, 1), (SPARSE, 64)])
def test_beside_fa3_triton_decodes(told: dict[str, Any], page: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(told))
    command = (
        f"python -m sglang.launch_server --model-path {tmp_path} --page-size {page} "
        "--prefill-attention-backend fa3 --decode-attention-backend triton"
    )
    flags = ServerFlags(sglang_version="0.5.23", arch="sm90")
    assert never_starts(select_deployments(flags, command=command.split())[0]) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"quantization": "fp8"}, "quantized weights"),
        ({"moe_a2a_backend": "deepep"}, "an all-to-all"),
    ],
)
def test_what_is_not_known_is_named(flags: dict[str, Any], said: str, tmp_path: Path) -> None:
    unknown = _deployment(tmp_path, PLAIN, **{**STARTS, **flags}).shape.unknown
    assert unknown.startswith(f"dots3_note_text does not go with {said}")
