"""A start predicted: the runtime's own start on meta tensors, as one virtual rank of a GPU nobody has."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.graphs.policy import CapturePolicy
from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.server.errors import ConfigError, NeverStarts, NoRoomForTokens
from runtime.start.options import StartOptions
from runtime.start.run_record import Run
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.keys.starts import server_ends
from sgl_tune.memory.report import Constant, MemoryReport
from sgl_tune.memory.run_report import report_of
from sgl_tune.memory.start import Start, unpacked
from sgl_tune.processes.child import Child
from sgl_tune.processes.crew import Crew, Event, Member
from sgl_tune.processes.scratch import scratch
from sgl_tune.records import from_plain, to_plain
from sgl_tune.writing import written

if TYPE_CHECKING:
    from runtime.devices.base import Device
    from runtime.devices.meta import Meta
    from runtime.simulate.constants import Constant as Known
    from runtime.simulate.known_forwards import KnownForwards
    from runtime.start.phases import PhaseRecorder

Done = Callable[[], None]
_PROCESSES = 2  # a prediction takes one core and 350 MB
_POLL_SECONDS = 0.1
_KNOWN: dict[bytes, KnownForwards] = {}
_MOST_KNOWN = 4  # servers whose forwards a process keeps, a few MB each
_START, _RUN, _REFUSED = "start", "run", "refused"


class Predictor:
    """Predicts several starts side by side, in processes that stay for the next ones; one alone, here."""

    def __init__(self, done: Done = lambda: None) -> None:
        self._done = done
        self._processes = min(_PROCESSES, os.cpu_count() or 1)
        self._crew: Crew | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def counted_by(self, done: Done) -> Predictor:
        """From here on, with the same processes."""
        self._done = done
        return self

    def __call__(self, starts: Sequence[Start]) -> list[MemoryReport]:
        """In the order of `starts`."""
        if self._processes < 2 or (len(starts) < 2 and self._crew is None):
            return [self._counted(predict(start)) for start in starts]
        if self._crew is None:
            private = self._closing.enter_context(scratch())
            self._crew = self._closing.enter_context(Crew(__name__, self._processes, private))
        return self._shared(self._crew, starts)

    def _shared(self, crew: Crew, starts: Sequence[Start]) -> list[MemoryReport]:
        reports: dict[int, MemoryReport] = {}
        refused: list[UsageError] = []
        waiting = deque(enumerate(starts))
        for member in crew.members:
            _give(member, waiting)
        while len(reports) + len(refused) < len(starts):
            for member, event in crew.events(_POLL_SECONDS):
                number = event["number"]
                try:
                    reports[number] = self._counted(_told(event, starts[number]))
                except UsageError as error:
                    refused.append(error)  # raised when nobody is at work for this call any more
                _give(member, waiting)
            for member in crew.ended:
                raise _lost(member)
        if refused:
            raise refused[0]
        return [reports[number] for number in sorted(reports)]

    def _counted(self, report: MemoryReport) -> MemoryReport:
        self._done()
        return report


def _give(member: Member, waiting: deque[tuple[int, Start]]) -> None:
    if waiting:
        number, start = waiting.popleft()
        member.send(_START, number=number, start=start.packed())


def _told(event: Event, start: Start) -> MemoryReport:
    if event["kind"] == _REFUSED:
        raise UsageError(event["message"], event["remedy"])
    return _report(from_plain(Run, event["run"], "run"), start)


def _lost(member: Member) -> WorkFailed:
    member.show_output()
    remedy = "one prediction needs about 400 MB: is this machine out of memory?"
    return WorkFailed(f"a process that predicted a start {member.fate}", member.last_words or remedy)


def settled(
    starts: Sequence[Start],
    reports: Sequence[MemoryReport],
    predicted: Callable[[Sequence[Start]], Sequence[MemoryReport]],
) -> list[MemoryReport]:
    """Of one server: a stage that has room for more tokens than another gets as many as that one."""
    fewest = min((report.sizes.kv_tokens or 0 for report in reports), default=0)
    roomy = {i for i, report in enumerate(reports) if fewest and (report.sizes.kv_tokens or 0) > fewest}
    if not roomy or starts[0].parallel.pp == 1:
        return list(reports)
    again = iter(predicted([replace(starts[i], most_tokens=fewest) for i in sorted(roomy)]))
    return [next(again) if i in roomy else report for i, report in enumerate(reports)]


def together(
    servers: Sequence[Sequence[Start]], predicted: Callable[[Sequence[Start]], Sequence[MemoryReport]]
) -> list[list[MemoryReport]]:
    """Several servers side by side, each with the kinds of its ranks, `settled`."""
    reports = iter(predicted([start for starts in servers for start in starts]))
    alone = [[next(reports) for _ in starts] for starts in servers]
    return [settled(starts, of, predicted) for starts, of in zip(servers, alone, strict=True)]


def main(child: Child) -> None:
    """In a process of its own: one start after another."""
    for command in child.commands():
        number, start = command["number"], unpacked(command["start"])
        try:
            child.say(_RUN, number=number, run=to_plain(_run(start)))
        except UsageError as error:
            child.say(_REFUSED, number=number, message=error.message, remedy=error.remedy)


def predict(start: Start, snapshot: Path | None = None) -> MemoryReport:
    """`snapshot` is written as PyTorch's memory_viz page reads it."""
    return _report(_run(start, snapshot), start)


def _report(run: Run, start: Start) -> MemoryReport:
    return replace(report_of(run, start.name), never_starts=server_ends(start.deployment) or "")


def _run(start: Start, snapshot: Path | None = None) -> Run:
    import torch

    from runtime.devices.meta import Meta
    from runtime.simulate.snapshot import write_snapshot
    from runtime.start.phases import PhaseRecorder

    torch.set_num_threads(1)
    device = Meta(
        start.gpu.usable_bytes,
        start.arch,
        frames=snapshot is not None,
        constants=start.constants,
        overdraft=start.overdraft,
        known=_known_forwards(start),
        by_own_kernels=start.runtime.by_own_kernels,
    )
    recorder = PhaseRecorder(device, about=start.about())
    run_start(start, device, recorder)
    recorder.tell(constants=[asdict(constant) for constant in _constants(device)])
    if snapshot is not None:
        with written(snapshot) as file:
            write_snapshot(device.tracker.allocator, file)
    return recorder.run()


def _known_forwards(start: Start) -> KnownForwards | None:
    """Of earlier starts in this process. deep_gemm lays a forward out by what is free: it is run anew."""
    from runtime.simulate.known_forwards import KnownForwards

    if start.runtime.moe_runner_backend == "deep_gemm":
        return None
    known = _KNOWN.pop(start.forwards, None) or KnownForwards()
    _KNOWN[start.forwards] = known
    while len(_KNOWN) > _MOST_KNOWN:
        del _KNOWN[next(iter(_KNOWN))]
    return known.again()


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
        as_sglang=True,
        most_tokens=start.most_tokens,
        capture=CapturePolicy(order="ascending" if start.ascending else "descending"),
    )
    runner = ModelRunner(
        start.model,
        start.parallel,
        start.runtime,
        device,
        join,
        recorder,
        options,
        own_draft=start.own_draft,
    )
    try:
        with suppress(torch.OutOfMemoryError, NeverStarts, NoRoomForTokens, WorkspaceOverflow):
            runner.start()
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _constants(device: Meta) -> list[Constant]:
    """What was claimed beside torch's allocator, by its name."""
    claims = [(what, times, device.constants.claimed(what)) for what, times in device.claims.items()]
    return [_times(known, times, _name(what)) for what, times, known in claims if known.bytes]


def _times(known: Known, times: int, name: str) -> Constant:
    doubt = None if known.doubt is None else times * known.doubt
    return Constant(name, times * known.bytes, known.source, times, doubt)


def _name(what: str) -> str:
    """Without what was told with it, but for the ranks of a communicator."""
    name = what.partition(":")[0]
    return what if name == "nccl" else name
