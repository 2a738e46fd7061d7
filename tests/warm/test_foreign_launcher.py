"""What srun and torchrun say of a process, and what else may stand there."""

from __future__ import annotations

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.warm.foreign_launcher import SlurmTask, TorchWorker, joined

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
SRUN = {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "node1,node2",
    "SLURM_JOB_ID": "4711",
}


def test_they_say_where_a_process_stands() -> None:
    assert joined(TORCHRUN) == TorchWorker(1, 2, 0)
    task = joined(SRUN)
    assert isinstance(task, SlurmTask) and (task.rank, task.world_size) == (1, 2)
    assert task.address == "node1:24711"
    assert joined({}) is None and joined({"SLURM_STEP_NUM_TASKS": "1"}) is None


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "²", "9" * 5000, "\udcff", "7"])
@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"])
def test_a_rank_that_is_none_is_named(name: str, value: str) -> None:
    environ = SRUN if name.startswith("SLURM") else TORCHRUN
    with pytest.raises(UsageError, match=name):
        joined({**environ, name: value})


@pytest.mark.parametrize("name", ["WORLD_SIZE", "LOCAL_RANK"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        joined({key: value for key, value in TORCHRUN.items() if key != name})


@pytest.mark.parametrize("size", ["1000000", "999999999"])
def test_no_world_is_endless(size: str) -> None:
    with pytest.raises(UsageError, match="no ranks of WORLD_SIZE"):
        joined({**TORCHRUN, "WORLD_SIZE": size})


def test_nodes_that_nobody_can_tell_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="scontrol"):
        joined({**SRUN, "SLURM_STEP_NODELIST": "node[1-2]"})
    with pytest.raises(UsageError, match="names no node"):
        joined({**SRUN, "SLURM_STEP_NODELIST": " "})
