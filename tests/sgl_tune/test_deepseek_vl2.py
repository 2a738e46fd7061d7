"""DeepSeek-VL2's servers: which end in its class, and which are not computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

_FILES = json.loads(PUBLISHED.read_text())


def _deployment(folder: Path, size: str, told: str, release: str = "0.5.23") -> Deployment:
    (folder / "config.json").write_text(json.dumps(_FILES[f"deepseek-ai/deepseek-vl2{size}"]))
    command = f"python -m sglang.launch_server --model-path {folder} {told}"
    flags = ServerFlags(arch="sm90", sglang_version=release)
    return select_deployments(flags, command=command.split())[0]


@pytest.mark.parametrize(
    ("size", "told", "release", "why"),
    [
        ("", "--tp 8", "0.5.12", None),
        ("-small", "--tp 8 --dp 8 --enable-dp-attention", "0.5.23", None),
        ("", "--load-format dummy", "0.5.23", "leaves DeepSeek-VL2's attention without its matrices"),
        ("-tiny", "--load-format dummy", "0.5.23", None),
        ("", "--pp-size 2", "0.5.23", "no pipeline stages"),
        ("", "--tp 3", "0.5.23", "32 attention heads, as its class says, cannot be divided among 3 ranks"),
        ("-tiny", "", "0.5.18", "v_head_dim is 0, and before 0.5.19"),
        ("-tiny", "", "0.5.19", None),
        ("-tiny", "--tp 2 --dp 2 --enable-dp-attention", "0.5.23", "splits its heads over all 2 ranks"),
    ],
)
def test_which_servers_end_in_its_class(
    size: str, told: str, release: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, size, told, release))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize("size", ["", "-tiny"])
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", None),
        ("--quantization fp8", "quantized weights"),
        ("--speculative-algorithm NGRAM", "drafts"),
        ("--tp 2 --ep 2 --enable-eplb", "does not go with"),
    ],
)
def test_which_servers_are_not_computed(size: str, told: str, said: str | None, tmp_path: Path) -> None:
    unknown = _deployment(tmp_path, size, told).shape.unknown
    assert (not unknown) if said is None else said in unknown
