"""Lines of nodes as `sgl-tune env --format json` prints them, of machines that are not here."""

import json
from pathlib import Path
from typing import Any

from sgl_tune.cache.record import serialise
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.fleet.node import holdings_json
from sgl_tune.fleet.take import take_holdings
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.verify.stores import machine_of
from tests.sgl_tune.cache.caches import HERE
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.planning import deployments
from tests.sgl_tune.running import Ran, run_here

SGLANG = "0.5.23"
FLAGS = ServerFlags.of(
    model_path="Qwen/Qwen3-30B-A3B", moe_runner_backend="flashinfer_cutlass", tp=2, gpu="h200",
    sglang_version=SGLANG, flashinfer_version="0.7.2",
)  # fmt: skip
WORDS = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", "--tp", 2)


def plan() -> Plan:
    return make_plan(*deployments(FLAGS), gpus=())


def entries() -> dict[str, Any]:
    return {entry.key: [op.runner, 1, list(op.policy)] for op in plan().target.ops for entry in op.entries}


def warmed(cache_dir: Path, **changes: Any) -> Path:
    """Both ranks' files; `changes` are of the environment."""
    for path in plan().target.paths:
        (cache_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (cache_dir / path).write_bytes(serialise({**TARGET, **changes}, entries()))
    return (cache_dir / plan().target.paths[0]).parent


def node(cache_dir: Path, name: str = "a", **changes: Any) -> dict[str, Any]:
    machine = machine_of(ServerFlags(), HERE, None, None)
    holdings = take_holdings(cache_dir, machine, lambda: None, {"HOME": str(cache_dir / "home")})
    gpus = [{"name": "NVIDIA H200", "arch": "sm90", "mib": 143771, "uuid": f"{name}-{i}"} for i in range(2)]
    told = {
        "schema_version": 1, "name": name, "tool": "0.1.0", "metadata": TARGET, "arch": "sm90",
        "driver": "580.95", "torch": "2.11.0", "sglang": SGLANG, "libraries": {}, "gpus": gpus, "unknown": [],
    }  # fmt: skip
    return {**told, **holdings_json(holdings), "user": "sglang", **changes}


def fleet_file(path: Path, *nodes: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in nodes))
    return path


def judged(path: Path, *more: object) -> tuple[Ran, dict[str, Any]]:
    ran = run_here("verify", "--fleet", path, *WORDS, "--format", "json", *more)
    return ran, json.loads(ran.out or "{}")
