"""Every command that takes --target says the same of the same cache, and so does a fleet of that machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import DeviceKind, ProofKind, Wishes
from sgl_tune.ship.remote.described import machine_for
from sgl_tune.verify.environment import read_target
from tests.sgl_tune.fleet.nodes import WORDS, fleet_file, node, warmed
from tests.sgl_tune.running import run_here

SILENT = "the target does not say its"
NO_GPU = "does not say its GPU"
GPUS = [{"name": "NVIDIA H200", "arch": "sm90", "mib": 143771, "uuid": "u"}]

# By field: what the environment says in place of the equal value; then, of a server that loads the cache,
# whether it is good with its deployment, and by the files alone. None: the target does not say it.
CASES: dict[str, tuple[dict[str, Any], bool | None, bool | None]] = {
    "equal": ({}, True, True),
    "cuda different": ({"cuda_version": "12.8"}, False, False),
    "cuda unknown": ({"cuda_version": "unknown"}, None, None),
    "cuda absent": ({"cuda_version": None}, None, None),
    "cudnn different": ({"cudnn_version": "90000"}, False, False),
    "cudnn unknown to a server with CUDA": ({"cudnn_version": "unknown"}, False, False),
    "cudnn absent": ({"cudnn_version": None}, None, None),
    "gpu different": ({"gpu": "NVIDIA B200", "gpus": []}, False, False),
    "gpu unknown": ({"gpu": "unknown", "gpus": []}, None, None),
    "gpu absent": ({"gpu": None, "gpus": [], "arch": None}, None, None),
    "gpu of the driver alone": ({"gpu": "unknown"}, True, True),
    "flashinfer different": ({"flashinfer_version": "0.7.1"}, False, False),
    "flashinfer unknown": ({"flashinfer_version": "unknown"}, True, None),  # SGLang pins it
    "flashinfer absent": ({"flashinfer_version": None}, True, None),
    "nothing of FlashInfer": ({"metadata": None}, None, None),
    "sglang different": ({"sglang": "0.5.22"}, False, True),
    "sglang unknown": ({"sglang": "unknown"}, False, False),
    "sglang absent": ({"sglang": None}, True, True),
    "driver different": ({"driver": "1.2"}, True, True),
    "driver unknown": ({"driver": "unknown"}, True, True),
    "driver absent": ({"driver": None}, True, True),
    "arch different": ({"arch": "sm100"}, True, True),  # the GPU has the word
    "arch unknown": ({"arch": "unknown"}, True, True),
    "arch absent": ({"arch": None}, True, True),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target") / "cache"
    warmed(folder)
    assert run_here("pack", folder, "-o", folder.with_name("b.tar.gz")).ends(0)
    return folder


def told(cache: Path, changed: dict[str, Any]) -> dict[str, Any]:
    """A line of `sgl-tune env`: members of the line, or FlashInfer's strings."""
    line = node(cache, gpus=GPUS)
    for name, value in changed.items():
        if name in line:
            line[name] = value
        else:
            line["metadata"] = {**line["metadata"], name: value}
    if line["metadata"]:
        line["metadata"] = {name: value for name, value in line["metadata"].items() if value is not None}
    return line


@pytest.mark.parametrize("case", CASES)
def test_all_commands_agree(case: str, cache: Path, tmp_path: Path) -> None:
    changed, deployed, alone = CASES[case]
    line = told(cache, changed)
    env, nodes = tmp_path / "env.json", fleet_file(tmp_path / "f.jsonl", line)
    env.write_text(json.dumps(line))
    bundle, packed = cache.with_name("b.tar.gz"), ("-o", tmp_path / "p.tar.gz")
    target = ("--target", env)
    by_deployment = {
        "verify": run_here("verify", *target, "--cache-dir", cache, *WORDS),
        "fleet": run_here("verify", "--fleet", nodes, "--cache-dir", cache, *WORDS),
        "pack": run_here("pack", *target, "--cache-dir", cache, *packed, *WORDS),
    }
    by_files = {
        "verify": run_here("verify", cache, *target),
        "pack": run_here("pack", cache, *target, *packed),
        "unpack": run_here("unpack", bundle, *target, "--cache-dir", tmp_path / "new", "--dry-run"),
    }
    for good, answers in ((deployed, by_deployment), (alone, by_files)):
        for name, ran in answers.items():
            said = ran.out + ran.err
            assert (ran.code == 0) == (good is True), (case, name, said)
            assert (SILENT in said or NO_GPU in said) == (good is None), (case, name, said)
            assert "tuned elsewhere" not in said or good is False, (case, name, said)
    if case != "sglang unknown":
        target = read_target(env)
        assert machine_for(env, None, None).gpu in (None, target.gpu_name)
        wishes = Wishes(False, DeviceKind.auto, 60.0, False, ProofKind.none, target, ())
        assert wishes.are_read(cache.rglob("rank_*.json"), Output()) == (alone is True), case


@pytest.mark.parametrize("command", ["mem-report", "explain", "warm --dry-run", "verify", "pack -o b.tar.gz"])
def test_a_target_without_a_gpu_is_no_target_for_a_plan(command: str, cache: Path, tmp_path: Path) -> None:
    env = tmp_path / "env.json"
    env.write_text(json.dumps(told(cache, {"gpu": "unknown", "gpus": [], "arch": None})))
    assert run_here(*command.split(), "--target", env, *WORDS).ends(2, NO_GPU, "--gpu")


def test_what_is_typed_beside_a_target_counts(cache: Path, tmp_path: Path) -> None:
    env = tmp_path / "env.json"
    env.write_text(json.dumps(told(cache, {"gpu": "unknown", "gpus": []})))
    assert run_here("verify", cache, "--target", env, "--gpu", "h200").code == 0
    env.write_text(json.dumps(told(cache, {})))
    assert run_here("verify", cache, "--target", env, "--gpu", "b200").code == 1


POD = """spec:
  nodeSelector: {{nvidia.com/gpu.product: {}}}
  containers:
  - image: lmsysorg/sglang:v0.5.23
    args: [python3, -m, sglang.launch_server, {}]
"""
PROJECT = '[deployments.one]\nmodel_path = "{}"\nmoe_runner_backend = "{}"\ntp = 2\ngpu = "{}"\n'


@pytest.mark.parametrize(("gpu", "code"), [("NVIDIA-H200", 0), ("NVIDIA-H100-80GB-HBM3", 1)])
def test_a_manifest_or_project_file_sets_the_gpu(gpu: str, code: int, cache: Path, tmp_path: Path) -> None:
    pod, project = tmp_path / "pod.yaml", tmp_path / "sgl-tune.toml"
    pod.write_text(POD.format(gpu, ", ".join(map(repr, map(str, WORDS)))))
    project.write_text(PROJECT.format(WORDS[1], WORDS[3], gpu))
    for file in (pod, project):
        ran = run_here("verify", "--cache-dir", cache, "-f", file)
        assert ran.code == code and ("gpu" in ran.out) == (code == 1), ran.out + ran.err
