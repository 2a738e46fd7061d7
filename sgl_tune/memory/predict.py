"""A start predicted: the runtime's own start on meta tensors, as one virtual rank of a GPU nobody has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.graphs.policy import CapturePolicy
from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.simulate.constants import constants_for
from runtime.start.options import StartOptions
from runtime.start.run_record import Run
from sgl_tune.errors import UsageError
from sgl_tune.memory.report import Constant, MemoryReport
from sgl_tune.memory.run_report import report_of
from sgl_tune.memory.start import Start
from sgl_tune.writing import written

if TYPE_CHECKING:
    from runtime.devices.base import Device
    from runtime.devices.meta import Meta
    from runtime.start.phases import PhaseRecorder


def predict_all(
    starts: Sequence[Start], done: Callable[[], None] = lambda: None, snapshot: Path | None = None
) -> list[MemoryReport]:
    """The ranks of one server: a stage that has room for more tokens than another gets as many as that one.
    `snapshot` is of the first."""
    found: list[MemoryReport] = []
    for start in starts:
        found.append(predict(start, None if found else snapshot))
        done()
    fewest = min((report.sizes.kv_tokens or 0 for report in found), default=0)
    return [
        predict(replace(start, most_tokens=fewest))
        if start.parallel.pp > 1 and 0 < fewest < (report.sizes.kv_tokens or 0)
        else report
        for start, report in zip(starts, found, strict=True)
    ]


def predict(start: Start, snapshot: Path | None = None) -> MemoryReport:
    """`snapshot` is written as PyTorch's memory_viz page reads it."""
    return report_of(_run(start, snapshot), start.name)


def _run(start: Start, snapshot: Path | None) -> Run:
    import torch

    from runtime.devices.meta import Meta
    from runtime.simulate.snapshot import write_snapshot
    from runtime.start.phases import PhaseRecorder

    torch.set_num_threads(1)
    constants = replace(constants_for(start.arch), has_peers=start.has_peers)
    device = Meta(start.gpu.usable_bytes, start.arch, frames=snapshot is not None, constants=constants)
    recorder = PhaseRecorder(device, about=start.about())
    run_start(start, device, recorder)
    recorder.tell(constants=[asdict(constant) for constant in _constants(device)])
    if snapshot is not None:
        with written(snapshot) as file:
            write_snapshot(device.tracker.allocator, file)
    return recorder.run()


def run_start(start: Start, device: Device, recorder: PhaseRecorder, meeting: str | None = None) -> None:
    """Peers join at `meeting`; without one they are arithmetic. An end that belongs into a report is the
    recorder's; any other is raised.
    """
    import torch

    from runtime.forward.comm import Communicator, VirtualCommunicator, connect
    from runtime.start.model_runner import ModelRunner

    def join() -> Communicator:
        if meeting is None:
            return VirtualCommunicator(start.parallel, start.rank)
        return connect(start.parallel, start.rank, meeting, device.torch_device)

    options = StartOptions(
        lm_head_in_autotune=start.lm_head,
        most_tokens=start.most_tokens,
        capture=CapturePolicy(order="ascending" if start.ascending else "descending"),
    )
    runner = ModelRunner(start.model, start.parallel, start.runtime, device, join, recorder, options)
    try:
        with suppress(torch.OutOfMemoryError, NoRoomForTokens, WorkspaceOverflow):
            runner.start()
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _constants(device: Meta) -> list[Constant]:
    """What was claimed beside torch's allocator, by its name."""
    found = []
    for what, times in device.claims.items():
        known = device.constants.claimed(what)
        name = what if what.startswith("nccl:") else what.partition(":")[0]
        doubt = None if known.doubt is None else times * known.doubt
        if known.bytes:
            found.append(Constant(name, times * known.bytes, known.source, times, doubt))
    return found
