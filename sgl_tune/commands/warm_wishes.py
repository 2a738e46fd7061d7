"""The options of a `warm`, as typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import Ended, SglTuneError, UsageError

if TYPE_CHECKING:
    from sgl_tune.cli.out import Output
    from sgl_tune.verify.environment import Target
    from sgl_tune.warm.plan_page import Answer


ONE_NODE = {"nnodes": 1, "node_rank": 0}  # no key and no entry depends on the number of nodes
_LAUNCHERS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"),
    "srun": ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
}


class DeviceKind(str, Enum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class ProofKind(str, Enum):
    none = "none"
    files = "files"
    server = "server"


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options. `target`: None if no --target is given. `here`: the GPUs of this machine."""

    dry_run: bool
    device: DeviceKind
    timeout: float
    replace: bool
    prove: ProofKind
    target: Target | None
    here: tuple[Gpu, ...]
    compiles_only: bool = False  # do nothing that needs a GPU

    @property
    def is_proven(self) -> bool:
        return self.prove is not ProofKind.none

    def are_read(self, files: Iterable[Path], out: Output) -> bool:
        """Whether the server of --target accepts files that were tuned in this machine's environment."""
        if self.target is None or self.target.metadata is None:
            return True
        from sgl_tune.verify.judge import Judge, Verdict

        judge, found = Judge(self.target), True
        for file in files:
            judged = judge.judge(file, file.read_bytes())
            if judged.verdict not in (Verdict.HIT, Verdict.PARTIAL):
                out.warn(f"{self.target.origin}: {judged.findings[0].message}")
                found = False
        return found


def answer_each(asked: Sequence[tuple[str, Callable[[], Answer]]], out: Output) -> NoReturn:
    """Print one result for all deployments, and exit. One that fails does not stop the others."""
    answers: list[Answer] = []
    code = 0

    def show() -> None:
        for one in answers:
            one.show()

    try:
        for name, answered in asked:
            try:
                answers.append(answered())
            except SglTuneError as error:
                if len(asked) == 1:
                    raise
                out.error(f"{name}: {error.message}", error.remedy)
                code = max(code, error.exit_code)
    finally:  # a signal loses no answer that is already there
        if answers:
            results = [one.data for one in answers]
            data = results[0] if len(results) == 1 else {"plans": results}
            out.result(data, show, [path for one in answers for path in one.paths])
    raise Ended(max([code, *(one.code for one in answers)]))


def check_one_process(environ: Mapping[str, str] | None = None) -> None:
    """Refuse to run as one of several processes of a launcher, because each would tune on all GPUs."""
    environ = os.environ if environ is None else environ
    for launcher, (marks, counts) in _LAUNCHERS.items():
        if marks in environ and environ.get(counts, "1") != "1":
            raise UsageError(
                f"{launcher} started several processes of `sgl-tune warm`, and one uses all GPUs of its node",
                f"run it once, without {launcher} or with one task",
            )
