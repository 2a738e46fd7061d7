"""Servers of published checkpoints, each laid out as a case says in few words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from tests.memory.checkpoints import checkpoints
from tests.oracle.held import sizes_of


def deployed_at(model: str, place: str, release: str, argv: Sequence[str]) -> Deployment | None:
    """`place`: tp, or tp/ep/dp. None of a checkpoint that is not among the published ones."""
    config = next((one.config for one in checkpoints() if one.name == model), None)
    if config is None:
        return None
    tp, ep, dp = sizes_of(place)
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        command = ["python", "-m", "sglang.launch_server", "--model-path", folder, "--tp", str(tp)]
        command += ["--ep", str(ep)] if ep > 1 else []
        command += ["--dp", str(dp), "--enable-dp-attention"] if dp > 1 else []
        return select_deployments(ServerFlags(gpu="h200", sglang_version=release), (*command, *argv))[0]
