"""Intern-S1-Pro's servers: those that end in its class, and those that it is not known of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

IN_BLOCKS, PLAIN = "internlm/Intern-S1-Pro", "a/intern-s1-pro-not-quantized"


def _deployment(
    folder: Path, name: str, told: str = "", version: str = "0.5.12", arch: str = "sm90"
) -> Deployment:
    (folder / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[name]))
    command = f"python -m sglang.launch_server --model-path {folder} --trust-remote-code {told}"
    return select_deployments(ServerFlags(arch=arch, sglang_version=version), command=command.split())[0]


@pytest.mark.parametrize(
    ("version", "told", "why"),
    [
        ("0.5.12", "--tp 16 --ep 16 --nnodes 2", None),
        ("0.5.12", "--tp 8 --ep 8 --pp-size 2 --nnodes 2", "Intern-S1-Pro's rope is loaded into layer 0"),
        ("0.5.12", "--tp 8 --ep 8 --pp-size 2 --nnodes 2 --load-format dummy", None),
        ("0.5.13", "--tp 16 --ep 16 --nnodes 2", "since 0.5.13 SGLang tells layers where their stage begins"),
        ("0.5.23", "--tp 16 --ep 16 --nnodes 2", "since 0.5.13 SGLang tells layers where their stage begins"),
    ],
)
def test_which_servers_end_in_its_class(version: str, told: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, IN_BLOCKS, told, version))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        (PLAIN, "", None),
        (IN_BLOCKS, "--ep 8", None),
        (IN_BLOCKS, "--ep 8 --moe-a2a-backend deepep", None),
        (PLAIN, "--quantization fp8", "quantized weights but those of a checkpoint in fp8 blocks"),
        (PLAIN, "--speculative-algorithm NGRAM", "drafts"),
        (PLAIN, "--ep 8 --ep-num-redundant-experts 8", None),
    ],
)
def test_what_is_not_known_is_named(name: str, told: str, said: str | None, tmp_path: Path) -> None:
    shape = _deployment(tmp_path, name, f"--tp 8 {told}").shape
    assert (shape.model is None) is (said is not None)
    assert said is None or f"interns1_pro_text does not go with {said}" in shape.unknown


@pytest.mark.parametrize(("version", "known"), [("0.5.12", False), ("0.5.22", False), ("0.5.23", True)])
def test_kernels_that_choose_experts_by_themselves_are_not_told_of_groups(
    version: str, known: bool, tmp_path: Path
) -> None:
    told = "--tp 8 --moe-runner-backend flashinfer_trtllm"
    shape = _deployment(tmp_path, PLAIN, told, version, arch="sm100").shape
    assert (shape.model is not None) is known
    assert known or "trtllm kernels before 0.5.23: they choose experts by other rules" in shape.unknown
