"""The launcher's side of the proof: are the files of a group equal, and what did the fresh process find."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.cache.disk import read_regular
from sgl_tune.cache.store import Written
from sgl_tune.cache.transaction import locked
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import Scratch
from sgl_tune.warm.events import DONE, JOB
from sgl_tune.warm.job import Job

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Proof:
    asked: int
    hits: int
    misses: tuple[str, ...]
    ignored: tuple[str, ...]
    profiled: dict[str, int]
    load_seconds: float
    rows: int
    tuned_ms: float
    untuned_ms: float

    @property
    def is_good(self) -> bool:
        return not (self.misses or self.ignored or self.profiled) and self.asked > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "hits": self.hits,
            "misses": list(self.misses),
            "ignored": list(self.ignored),
            "profiled": self.profiled,
            "load_seconds": self.load_seconds,
            "forward": {"rows": self.rows, "tuned_ms": self.tuned_ms, "untuned_ms": self.untuned_ms},
        }


def prove(
    job: Job, written: Sequence[Written], scratch: Scratch, timeout: float, tick: Callable[[], None]
) -> list[Proof]:
    """Under the writers' lock, so that another warm of this deployment cannot change a file in between."""
    with ExitStack() as stack:
        for group in sorted({one.paths[0].parent for one in written}):
            stack.enter_context(locked(group))
        for one in written:
            _check_equal(one.paths)
        return [_proof(data) for data in _run(job, scratch, timeout, tick)]


def _check_equal(paths: Sequence[Path]) -> None:
    contents = {read_regular(path) for path in paths}
    if len(contents) > 1:
        raise WorkFailed(
            f"{paths[0].parent}: somebody without a lock, a server perhaps, changed one of the rank files",
            "stop the server and warm again",
        )


def _run(job: Job, scratch: Scratch, timeout: float, tick: Callable[[], None]) -> list[dict[str, Any]]:
    deadline = time.monotonic() + timeout
    with Crew("sgl_tune.warm.prove", 1, scratch) as crew:
        (prover,) = crew.members
        prover.send(JOB, job=job.to_json())
        while time.monotonic() < deadline:
            for _, event in crew.events(_POLL_SECONDS):
                if event["kind"] == DONE:
                    return event["proofs"]
            if crew.ended:
                prover.show_output()
                raise WorkFailed(f"the proof {prover.fate}; the files are written", prover.last_words)
            tick()
    raise WorkFailed(f"the proof did not end within {timeout:.0f} s; the files are written")


def _proof(data: dict[str, Any]) -> Proof:
    forward = data.pop("forward")
    return Proof(
        **{**data, "misses": tuple(data["misses"]), "ignored": tuple(data["ignored"])},
        rows=forward["rows"],
        tuned_ms=forward["tuned_ms"],
        untuned_ms=forward["untuned_ms"],
    )
