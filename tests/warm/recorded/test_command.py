"""`warm --server`: what is asked of whom, before anything is started."""

import json
import sys
from pathlib import Path

import pytest

from tests.sgl_tune.running import run, run_here

MODEL = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
HERE = ("--server", sys.executable)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--device", "cpu"), "--device cpu does not go with it"),
        (("--gpu", "sm90"), "--gpu sm90 does not go with it"),
        (("--gpu", "h200"), "no SGLang is installed there"),
    ],
)
def test_what_a_server_does_not_answer_is_named(more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert run_here("warm", "--dry-run", *HERE, *MODEL, *more, "--cache-dir", tmp_path).ends(2, said)
    assert not list(tmp_path.iterdir())


def test_a_server_without_a_model_is_named() -> None:
    assert run_here("warm", "--dry-run", *HERE).ends(2, "no model is named")


def test_without_a_server_the_core_plans_and_says_so() -> None:
    plan = json.loads(run_here("warm", "--dry-run", *MODEL, "--gpu", "h200", "--format", "json").out)
    assert plan["exact"] is False
    assert [one["kind"] for one in plan["inexact"]] == ["core"] and "no server" in plan["inexact"][0]["why"]


def test_a_proof_by_the_server_needs_a_server() -> None:
    ran = run_here("warm", "--dry-run", *MODEL, "--gpu", "h200", "--prove", "server")
    assert ran.code == 2 and "--prove server starts the server, and none is asked" in ran.err


def test_a_deployment_of_the_project_is_asked_of_the_server_too(tmp_path: Path) -> None:
    (tmp_path / "sgl-tune.toml").write_text(
        '[deployments.chat]\nmodel-path = "Qwen3-30B-A3B"\ngpu = "h200"\n'
    )
    for command in (("warm", "--dry-run"), ("warm", "--everything", "--dry-run"), ("verify",)):
        for named in (("-f", "sgl-tune.toml:chat"), ())[: 1 + ("warm" in command)]:
            assert run(*command, *named, *HERE, cwd=tmp_path).ends(2, "no SGLang is installed there")
