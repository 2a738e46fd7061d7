"""A warm is one process on one node: it writes the files of every rank, and the other nodes take them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError

ONE_NODE = {"nnodes": 1, "node_rank": 0}  # the number of nodes is in no key and in no entry
_OF_NODES = ("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr")
_BUNDLE = "cache.tar.gz"
_LAUNCHERS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"),
    "srun": ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
}


def check_one_node(flags: ServerFlags, typed: Sequence[str] | None = None) -> None:
    """Refuse --nnodes and --node-rank as flags of ours, with the commands that replace them."""
    if (flags.nnodes or 1) == 1 and not flags.node_rank:
        return
    words = sys.argv[1:] if typed is None else typed
    warm = shlex.join(["sgl-tune", *_without_nodes(words)])
    place = f" --cache-dir {shlex.quote(flags.cache_dir)}" if flags.cache_dir else ""
    raise UsageError(
        "one node warms for all nodes: it writes the files of every rank, and the others take them",
        f"on one node: {warm} && sgl-tune pack{place} -o {_BUNDLE}; "
        f"on each other node: sgl-tune unpack {_BUNDLE}{place}",
    )


def check_one_process(environ: Mapping[str, str] | None = None) -> None:
    """Refuse to be one of several processes that a launcher started: each would warm on all GPUs."""
    environ = os.environ if environ is None else environ
    for launcher, (marks, counts) in _LAUNCHERS.items():
        if marks in environ and environ.get(counts, "1") != "1":
            raise UsageError(
                f"{launcher} started several processes of `sgl-tune warm`, and one uses all GPUs of its node",
                f"run it once, without {launcher} or with one task",
            )


def _without_nodes(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in _OF_NODES:
            next(rest, None)
        elif word.partition("=")[0] not in _OF_NODES:
            yield word
