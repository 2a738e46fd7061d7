"""The launcher's side of the proof: check that a group's files are equal, and ask a fresh process."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from runtime.record.checked import from_plain
from sgl_tune.cache.disk import read_regular
from sgl_tune.cache.store import Written
from sgl_tune.cache.transaction import locked
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import THIS, Python
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import Scratch
from sgl_tune.warm.events import IMPORT, JOB
from sgl_tune.warm.job import Job


@dataclass(frozen=True, slots=True)
class How:
    """The modules of the worker and the prover, and the Python they run in: this one or a server's."""

    worker: str
    prover: str
    python: Python = THIS


HERE = How("sgl_tune.warm.worker", "sgl_tune.warm.prove")


def of_records(python: Python) -> How:
    """Return what replays records, in the server's Python."""
    return How("sgl_tune.warm.recorded.worker", "sgl_tune.warm.recorded.prove", python)


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward of `rows`, timed with and without the files in turns. `gain`: the median turn's."""

    rows: int
    tuned_ms: float
    untuned_ms: float
    gain: float
    turns: int
    clear: bool


@dataclass(frozen=True, slots=True)
class Proof:
    asked: int
    hits: int
    misses: tuple[str, ...]
    ignored: tuple[str, ...]
    profiled: dict[str, int]
    load_seconds: float
    forward: Forward
    compiled: dict[str, tuple[str, ...]]  # by the forward that compiled
    own_kernels: int  # kernels of this runtime by Triton; a server has others
    uncaptured: str | None  # why no graph was captured

    @property
    def compiled_for_a_server(self) -> list[str]:
        """Return the compiled kernels of the chosen tactics, without those of the untuned forward, which
        no server with these files runs."""
        return list(dict.fromkeys((*self.compiled["tuned"], *self.compiled["captured"])))

    @property
    def is_good(self) -> bool:
        spoilt = self.misses or self.ignored or self.profiled or self.compiled_for_a_server
        return not spoilt and self.asked > 0


class Prover:
    """A process that proves. It starts early, because its imports take longer than a proof. It opens no
    file and no GPU until asked."""

    def __init__(self, scratch: Scratch, device: str, how: How = HERE) -> None:
        self.steps: dict[str, float] = {}
        self._crew = Crew(how.prover, 1, scratch, python=how.python)
        self._crew.members[0].send(IMPORT, device=device)

    def close(self) -> None:
        self._crew.close()

    def prove(
        self, job: Job, written: Sequence[Written], timeout: float, tick: Callable[[], None]
    ) -> list[Proof]:
        """Prove the written files under the writers' lock, so that no other warm changes them meanwhile."""
        with ExitStack() as stack:
            for group in sorted({one.paths[0].parent for one in written}):
                stack.enter_context(locked(group))
            for one in written:
                _check_equal(one.paths)
            self._crew.members[0].send(JOB, job=job.to_json())
            done = self._crew.answer("the files are written, but their proof", timeout, tick)
            self.steps = done["steps"]
            return [from_plain(Proof, told, "proof") for told in done["proofs"]]


def _check_equal(paths: Sequence[Path]) -> None:
    contents = {read_regular(path) for path in paths}
    if len(contents) > 1:
        raise WorkFailed(
            f"{paths[0].parent}: somebody without a lock, a server perhaps, changed one of the rank files",
            "stop the server and warm again",
        )
