"""Server commands after `--`, from words to a plan: what recorded answers hold of the rules holds of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.releases import RELEASES
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.plan import make_plan
from tests.oracle.commands import Command
from tests.oracle.ours import our_answer
from tests.oracle.published import published
from tests.oracle.record import RECORDED, read
from tests.sgl_tune.planning import TARGET, warm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for one in published().values():
        (root / one.path).mkdir(parents=True)
        (root / one.path / "config.json").write_text(json.dumps(one.config))
        if one.modelopt_file:
            (root / one.path / "hf_quant_config.json").write_text(json.dumps(one.modelopt_file))
    return root


def _planned(command: Command) -> dict[str, Any]:
    words = ["python", "-m", "sglang.launch_server", *command.argv]
    flags = ServerFlags(sglang_version=command.release, gpu=command.gpu)
    try:
        data = make_plan(select_deployments(flags, words, environ={})[0], gpus=()).to_json()
    except UsageError as refusal:
        return {"refused": refusal.message}
    assert bool(data["files"]) <= data["server"]["tunes"]
    return {"server": {**data["server"], "key": data["key"]}}


def _ruled(command: Command) -> dict[str, Any] | None:
    """But for what a plan shows nobody."""
    server: dict[str, Any] | None = our_answer(command).get("server")
    return None if server is None else {name: one for name, one in server.items() if name != "sparse_kernels"}


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_a_command_is_planned_as_the_rules_have_it(
    release: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    commands = [command for command, _ in read(RECORDED) if command.release == release]
    apart = [one for one in commands if _planned(one).get("server") != _ruled(one)]
    assert apart == []


def test_a_family_without_layers_here_keeps_its_key_and_its_files(folder: Path, tmp_path: Path) -> None:
    known = json.loads((folder / "models/Qwen/Qwen3-Next-80B-A3B-Instruct-FP8/config.json").read_text())
    unknown = {**known, "model_type": "jet_vlm", "architectures": ["JetVLMForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(unknown))
    model = (
        "--model-path",
        tmp_path,
        "--tp",
        8,
        "--gpu",
        "b200",
        "--moe-runner-backend",
        "flashinfer_trtllm",
    )
    ran = warm(*TARGET, *model, "--format", "json")
    data = json.loads(ran.out)
    assert ran.code == 1 and data["verdict"]["tunes"] == "unplanned"
    assert data["key_parts"][8] == "JetVLMConfig" and data["server"]["tunes"]
    assert len(data["files"]) == 8 and data["ops"] == [] and data["worker_bytes"] == 0
    assert "model_type 'jet_vlm' is not supported" in warm(*TARGET, *model).out
