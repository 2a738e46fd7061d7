"""A start predicted: the runtime's own start on meta tensors, as one virtual rank of a GPU nobody has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.graphs.policy import CapturePolicy
from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.server.errors import ConfigError
from runtime.server.pool_plan import NoRoomForTokens
from runtime.start.options import StartOptions
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.files import written
from sgl_tune.memory.report import Constant, MemoryReport
from sgl_tune.memory.run_report import report_of
from sgl_tune.memory.start import Start

if TYPE_CHECKING:
    from runtime.devices.base import Device
    from runtime.devices.meta import Meta
    from runtime.start.phases import PhaseRecorder

Done = Callable[[], None]
_PROCESSES = 2  # a prediction takes one core and 350 MB


class Predictor:
    """Predicts several starts side by side, in processes that stay for the next ones; one alone, here."""

    def __init__(self, done: Done = lambda: None) -> None:
        self._done = done
        self._processes = min(_PROCESSES, os.cpu_count() or 1)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, starts: Sequence[Start]) -> list[MemoryReport]:
        """In the order of `starts`."""
        if self._processes < 2 or (len(starts) < 2 and self._pool is None):
            return [self._counted(predict(start)) for start in starts]
        self._pool = self._pool or ProcessPoolExecutor(self._processes, mp_context=get_context("spawn"))
        try:
            return [self._counted(report) for report in self._pool.map(predict, starts)]
        except BrokenProcessPool as error:
            raise WorkFailed(
                "a process that predicted a start was killed",
                "one prediction needs about 400 MB: is this machine out of memory?",
            ) from error

    def _counted(self, report: MemoryReport) -> MemoryReport:
        self._done()
        return report


def predict(start: Start, snapshot: Path | None = None) -> MemoryReport:
    """`snapshot` is written as PyTorch's memory_viz page reads it."""
    import torch

    from runtime.devices.meta import Meta
    from runtime.simulate.snapshot import write_snapshot
    from runtime.start.phases import PhaseRecorder

    torch.set_num_threads(1)
    device = Meta(start.gpu.usable_bytes, start.arch, frames=snapshot is not None, constants=start.constants)
    recorder = PhaseRecorder(device, about=start.about())
    run_start(start, device, recorder)
    recorder.tell(constants=[asdict(constant) for constant in _constants(device)])
    if snapshot is not None:
        with written(snapshot) as part:
            write_snapshot(device.tracker.allocator, part)
    return report_of(recorder.run(), start.name)


def run_start(start: Start, device: Device, recorder: PhaseRecorder) -> None:
    """An end that belongs into a report is the recorder's; any other is raised."""
    import torch

    from runtime.forward.comm import VirtualCommunicator
    from runtime.start.model_runner import ModelRunner

    options = StartOptions(
        lm_head_in_autotune=start.lm_head,
        as_sglang=True,
        capture=CapturePolicy(order="ascending" if start.ascending else "descending"),
    )
    runner = ModelRunner(
        start.model,
        start.parallel,
        start.runtime,
        device,
        lambda: VirtualCommunicator(start.parallel, start.rank),
        recorder,
        options,
    )
    try:
        with suppress(torch.OutOfMemoryError, NoRoomForTokens, WorkspaceOverflow):
            runner.start()
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _constants(device: Meta) -> list[Constant]:
    """What was claimed beside torch's allocator, by its name."""
    known = {what: device.constants.claimed(what) for what in device.claims}
    return [
        Constant(what, times * known[what].bytes, known[what].source, times)
        for what, times in device.claims.items()
        if known[what].bytes
    ]
