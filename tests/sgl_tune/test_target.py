"""--target names GPU, driver, SGLang and FlashInfer at once, and means the same in every command."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.verify.environment import read_target
from tests.sgl_tune.running import ROOT

ENV = ROOT / "cache-examples" / "h200.env.json"


def env(folder: Path, **changed: Any) -> Path:
    file = folder / "env.json"
    file.write_text(json.dumps({**json.loads(ENV.read_text()), **changed}))
    return file


def test_what_is_typed_beside_it_counts() -> None:
    target = read_target(ENV)
    assert target.flags(ServerFlags()).target.sglang_version == "0.5.17"
    assert target.flags(ServerFlags()).target.gpu == "NVIDIA H200"
    asked = target.flags(ServerFlags.of(sglang_version="0.5.20", gpu="b200"))
    assert (asked.target.sglang_version, asked.target.gpu) == ("0.5.20", "b200")
    assert target.flags(ServerFlags.of(arch="sm90")).target.gpu is None


def test_the_image_of_a_command_and_the_target_must_agree() -> None:
    target = read_target(ENV)
    run = "docker run lmsysorg/sglang:v{} python -m sglang.launch_server --model-path m"
    assert target.flags(ServerFlags(), [run.format("0.5.17")]).target.sglang_version == "0.5.17"
    with pytest.raises(UsageError, match=r"is of SGLang 0\.5\.17, and the server's image of 0\.5\.20"):
        target.flags(ServerFlags(), [run.format("0.5.20")])


def test_a_server_of_another_flashinfer_is_no_answer() -> None:
    target = read_target(ENV)
    target.check_server(Path("/p"), "0.7.2")
    with pytest.raises(UsageError, match=r"FlashInfer 0\.7\.2, and the server /p has 0\.7\.4"):
        target.check_server(Path("/p"), "0.7.4")


def test_a_gpu_that_only_its_driver_tells_of_is_the_targets(tmp_path: Path) -> None:
    gpu = {"name": "NVIDIA H999", "arch": "sm90", "mib": 200000, "uuid": "u"}
    target = read_target(env(tmp_path, gpus=[gpu]))
    assert target.gpu_name == "NVIDIA H999"
    assert target.model is not None and (target.model.name, target.model.memory_mib) == ("H999", 200000)
