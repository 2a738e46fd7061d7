"""Why a server ends at its start, as tests ask it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

PUBLISHED = Path(__file__).parents[1] / "memory/data/published_families.json"
PUBLISHED_TRINITY = json.dumps(json.loads(PUBLISHED.read_text())["arcee-ai/Trinity-Mini"])
OWN_CLASS = {"auto_map": {"AutoConfig": "configuration_step3p5.Step3p5Config"}}  # beside Step 3.5's file
CUTLASS, TRTLLM = {"moe_runner_backend": "flashinfer_cutlass"}, {"moe_runner_backend": "flashinfer_trtllm"}
QWEN, DEEPSEEK = {"model_path": "Qwen3-30B-A3B"}, {"model_path": "DeepSeek-V3", "tp": 8}


def why_it_ends(**flags: Any) -> str | None:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm100"}
    return never_starts(resolve_deployment(ServerFlags(**{**target, **flags}), environ={}))


def served(
    folder: Path,
    config: Any,
    words: str = "",
    release: str = "0.5.23",
    gpu: str = "H100",
    environ: Mapping[str, str] | None = None,
) -> Deployment:
    """A server command of a file."""
    (folder / "config.json").write_text(json.dumps(config))
    command = f"python -m sglang.launch_server --model-path {folder} {words}".split()
    (found,) = select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command, environ=environ)
    return found


def published_server(folder: Path, model: str, release: str, gpu: str, words: str) -> Deployment:
    """Of a published checkpoint."""
    return served(folder, published_config(model), words, release, gpu, environ={})


def check_server(
    folder: Path, config: Any, words: str, ends: str | None, unknown: str, release: str = "0.5.23"
) -> None:
    """Of a model with a tower on an H100: what of its start a line of words makes an end, or not known."""
    found = served(folder, config, words, release)
    said = never_starts(found)
    assert said is None if ends is None else said is not None and ends in said
    assert unknown in found.shape.unknown if unknown else not found.shape.unknown
