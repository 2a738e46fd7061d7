"""A warm is one process on one node: it writes the files of every rank, and the other nodes take them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sgl_tune.errors import UsageError

ONE_NODE = {"nnodes": 1, "node_rank": 0}  # the number of nodes is in no key and in no entry
_LAUNCHERS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"),
    "srun": ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
}


def check_one_process(environ: Mapping[str, str] | None = None) -> None:
    """Refuse to be one of several processes that a launcher started: each would warm on all GPUs."""
    environ = os.environ if environ is None else environ
    for launcher, (marks, counts) in _LAUNCHERS.items():
        if marks in environ and environ.get(counts, "1") != "1":
            raise UsageError(
                f"{launcher} started several processes of `sgl-tune warm`, and one uses all GPUs of its node",
                f"run it once, without {launcher} or with one task",
            )
