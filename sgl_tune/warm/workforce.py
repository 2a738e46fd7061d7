"""The processes of a whole warm: one worker per device and a prover, started once for all deployments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.warm.launch import Fleet, OnEvent, Workers
from sgl_tune.warm.proof import HERE, How, Prover


class Workforce:
    """The processes of a warm. One that failed or was interrupted is replaced at the next request."""

    def __init__(self, scratch: Scratch, how: How = HERE) -> None:
        self.scratch, self._how = scratch, how
        self._folders = 0
        self._workers: Workers | None = None
        self._prover: Prover | None = None

    def folder(self) -> Path:
        """Return a new folder for one deployment, so that its files are not mistaken for another's."""
        self._folders += 1
        folder = self.scratch.folder / f"deployment.{self._folders}"
        folder.mkdir(mode=0o700)
        return folder

    @property
    def has_worked(self) -> bool:
        """Whether there are workers that have already searched an earlier deployment."""
        return self._workers is not None

    def search(self, fleet: Fleet, job: Mapping[str, Any], on_event: OnEvent) -> Mapping[str, Any]:
        if self._workers is None or self._workers.fleet != fleet:
            self.dismiss_workers()
            self._workers = Workers(self._how.worker, self.scratch, fleet, self._how.python)
        try:
            return self._workers.run(job, on_event)
        except BaseException:
            self.dismiss_workers()
            raise

    def call_prover(self, device: str) -> None:
        """Start a prover, which imports while the workers search."""
        if self._prover is None or self._prover.device != device:
            self._dismiss_prover()
            self._prover = Prover(self.scratch, device, self._how)

    @contextmanager
    def prover(self, device: str) -> Iterator[Prover]:
        self.call_prover(device)
        assert self._prover is not None
        try:
            yield self._prover
        except BaseException:
            self._dismiss_prover()
            raise

    def dismiss_workers(self) -> None:
        workers, self._workers = self._workers, None
        if workers:
            workers.close()

    def _dismiss_prover(self) -> None:
        prover, self._prover = self._prover, None
        if prover:
            prover.close()

    def dismiss(self) -> None:
        self.dismiss_workers()
        self._dismiss_prover()


@contextmanager
def workforce(how: How = HERE) -> Iterator[Workforce]:
    with scratch() as private:
        force = Workforce(private, how)
        try:
            yield force
        finally:
            force.dismiss()
