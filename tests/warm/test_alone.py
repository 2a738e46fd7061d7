"""A warm is one process on one node, for all ranks of all nodes."""

import json

import pytest

from sgl_tune.commands.warm_wishes import check_one_process
from sgl_tune.errors import UsageError
from tests.sgl_tune.running import run_here

MODEL = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", "--tp", "4")
PLAN = ("warm", "--server", "core", "--dry-run", "--gpu", "h200", "--cache-dir", "/c")


@pytest.mark.parametrize("flag", ["--nnodes", "--node-rank=1"])
def test_flags_of_nodes_are_replaced_by_a_warm_and_an_unpack(flag: str) -> None:
    ran = run_here("warm", *MODEL, flag)
    assert (ran.code, ran.out) == (2, "")
    assert "sgl-tune pack -o cache.tar.gz; on each other node: sgl-tune unpack cache.tar.gz" in ran.err


def test_a_servers_command_of_two_nodes_is_planned_for_the_ranks_of_both() -> None:
    command = ("python", "-m", "sglang.launch_server", *MODEL)
    nodes = ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "node0:20000")
    plans = [
        json.loads(run_here(*PLAN, "--format", "json", "--", *command, *more).out) for more in ((), nodes)
    ]
    assert plans[0]["files"] == plans[1]["files"] and len(plans[1]["files"]) == 4
    assert plans[0]["key"] == plans[1]["key"]


@pytest.mark.parametrize(
    ("launcher", "environ"),
    [
        ("torchrun", {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2"}),
        ("srun", {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}),
    ],
)
def test_one_of_several_processes_of_a_launcher_warms_nothing(launcher: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{launcher} started several processes"):
        check_one_process(environ)
    check_one_process({**environ, "WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "1"})
    check_one_process({})
