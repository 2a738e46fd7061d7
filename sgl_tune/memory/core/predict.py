"""Predict a start with the core, on meta tensors, as one rank, without a GPU; and make the report of a run of
the core: predicted, measured, or read from the file of a start that died."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.record.checked import WrongMember, from_plain
from runtime.server.errors import ConfigError, NoRoomForTokens, Unsupported
from runtime.simulate.constants import H200
from runtime.start.run_record import SCHEMA_VERSION, Failure, Phase, Run
from sgl_tune.deployment.resolve import not_known
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.start import Start
from sgl_tune.memory.parts import NCCL, Owned, Share, rooted
from sgl_tune.memory.report import Constant, MemoryReport, Sizes, Whose
from sgl_tune.reading import bounded_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

    from runtime.devices.base import Device
    from runtime.devices.meta import Meta
    from runtime.start.model_runner import ModelRunner
    from runtime.start.phases import PhaseRecorder

_KINDS = {
    "MoELayer": "experts",
    "DenseLayer": "mlp",
    "TokenEmbedding": "embeddings",
    "VocabTable": "embeddings",
    "GroupedQueryAttention": "attention",
    "LatentAttention": "attention",
    "GatedDeltaNet": "attention",
    "Mamba2Mixer": "attention",
}
_LONGEST_NAME = 100
_COUNTED_MARGIN = 128 << 20
_DOUBT = 0.1
_REMEDY = "give the file that mem-report --out wrote"
_LARGEST = 16 << 20


def read_report(path: Path) -> MemoryReport:
    try:
        run = read_run(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return report_of(run, str(path))


@dataclass(frozen=True, slots=True)
class _About:
    """What a run's file says about the whole start, beside its sizes."""

    device: str = ""
    total_bytes: int = 0
    gpu: str = "GPU"
    rank: int = 0
    rank_name: str = "TP0"
    title: str = ""
    subtitle: str = ""
    constants: tuple[Constant, ...] = ()
    weights: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def report_of(run: Run, where: str) -> MemoryReport:
    """Return the report of a run. `where`: the run's name in errors."""
    try:
        about, sizes = from_plain(_About, run.about, where), from_plain(Sizes, run.about, where)
    except WrongMember as error:
        raise UsageError(str(error), "give the file that mem-report --out wrote") from error
    is_predicted = about.device == "meta"
    nccl = sum(of.bytes for of in about.constants if of.name.partition(":")[0] == "nccl")
    return MemoryReport(
        whose=Whose(
            gpu=about.gpu[:_LONGEST_NAME],
            source="core" if is_predicted else "measured",
            title=about.title or where,
            subtitle=about.subtitle,
            rank=about.rank,
            rank_name=about.rank_name,
        ),
        total_bytes=about.total_bytes,
        run=rooted(run),
        sizes=sizes,
        margin_bytes=_margin(about.constants) if is_predicted else 0,
        owned=Owned(about.weights, (Share(NCCL, nccl),)),
        constants=about.constants,
    )


def _margin(constants: tuple[Constant, ...]) -> int:
    """Return the error bar: the errors of predictions so far, plus the doubt about each calibrated number."""
    doubts = (_DOUBT * of.bytes if of.doubt is None else of.doubt for of in constants)
    return _COUNTED_MARGIN + round(sum(doubts))


def read_run(path: Path) -> Run:
    """Read a run's file. A last line that was cut short is dropped; other damage is an error."""
    lines = bounded_bytes(path, _LARGEST).splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except (ValueError, RecursionError) as error:
            if number == len(lines) and number > 1:
                break
            raise UsageError(f"{path}: line {number} is no record of a run: {error}", _REMEDY) from None
    if not records or records[0]["event"] != "run":
        raise UsageError(f"{path} is no run: its first line does not say what was run", _REMEDY)
    written_by = records[0].get("schema_version")
    if written_by != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema_version {written_by!r}, and this release reads {SCHEMA_VERSION}",
            "read it with the release that wrote it",
        )
    try:
        return _run(records)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} lacks or misplaces a member: {error}", _REMEDY) from None


def _record(line: bytes) -> dict[str, Any]:
    record = json.loads(line.decode("utf-8"))
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise ValueError("not an object with an event")
    return record


def _run(records: Iterable[dict[str, Any]]) -> Run:
    about: dict[str, Any] = {}
    phases: list[Phase] = []
    failure: Failure | None = None
    unfinished: list[str] = []
    for record in records:
        event = record["event"]
        if event in ("run", "facts"):
            about |= {name: value for name, value in record.items() if name != "event"}
        elif event == "begin":
            unfinished.append(from_plain(str, record["phase"], "phase"))
        elif event == "end":
            phases.append(from_plain(Phase, record, "phase"))
            unfinished.remove(phases[-1].name)
        elif event == "failed":
            failure = from_plain(Failure, record, "failure")
            unfinished.clear()
    return Run(about, tuple(phases), failure, tuple(unfinished))


def predict_all(starts: Sequence[Start]) -> list[MemoryReport]:
    """Predict the ranks of one server. Ranks of the same stage are alike. All stages get as many KV tokens
    as the stage with the least room."""
    stages: dict[int, MemoryReport] = {}
    for start in starts:
        stage = start.rank // start.parallel.tp
        if stage not in stages:
            stages[stage] = predict(start)
    fewest = min((report.sizes.kv_tokens or 0 for report in stages.values()), default=0)
    found: dict[int, MemoryReport] = {}
    for start in starts:
        stage = start.rank // start.parallel.tp
        if start.parallel.pp > 1 and 0 < fewest < (stages[stage].sizes.kv_tokens or 0):
            stages[stage] = predict(replace(start, most_tokens=fewest))
        whose = replace(stages[stage].whose, rank=start.rank, rank_name=start.rank_name)
        found[start.rank] = replace(stages[stage], whose=whose)
    return list(found.values())


def predict(start: Start) -> MemoryReport:
    """Predict one rank."""
    import torch

    from runtime.devices.meta import Meta
    from runtime.start.phases import PhaseRecorder

    torch.set_num_threads(1)
    constants = replace(H200, has_peers=start.has_peers)
    device = Meta(start.gpu.usable_bytes, start.gpu.arch, constants=constants)
    recorder = PhaseRecorder(device, about=start.about())
    run_start(start, device, recorder)
    recorder.tell(constants=[asdict(constant) for constant in _constants(device)])
    return report_of(recorder.run(), start.title)


def run_start(start: Start, device: Device, recorder: PhaseRecorder, meeting: str | None = None) -> None:
    """Run a start to its end. Peers join at `meeting`; without it, their share is computed. The recorder
    keeps a failure that belongs into the report. Any other failure is raised."""
    import torch

    from runtime.forward.comm import Communicator, VirtualCommunicator, connect
    from runtime.start.model_runner import ModelRunner

    def join() -> Communicator:
        if meeting is None:
            return VirtualCommunicator(start.parallel, start.rank)
        return connect(start.parallel, start.rank, meeting, device.torch_device)

    runner = ModelRunner(start.model, start.parallel, start.runtime, device, join, recorder, start.options)
    try:
        with suppress(torch.OutOfMemoryError, NoRoomForTokens, WorkspaceOverflow):
            runner.start()
    except Unsupported as error:
        raise not_known(error.message) from error
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error
    recorder.tell(weights=weights_of(runner))


def _constants(device: Meta) -> list[Constant]:
    """Return the memory claimed outside torch's allocator, by name."""
    found = []
    for what, times in device.claims.items():
        known = device.constants.claimed(what)
        name = what if what.startswith("nccl:") else what.partition(":")[0]
        doubt = None if known.doubt is None else times * known.doubt
        if known.bytes:
            found.append(Constant(name, times * known.bytes, known.source, times, doubt))
    return found


def weights_of(runner: ModelRunner) -> dict[str, dict[str, int]]:
    """Return the bytes of each kind of module, by the phase that loads them, as far as the start came."""
    models = {
        "weights": getattr(runner, "decoder", None),
        "draft weights": runner.draft and runner.draft.decoder,
    }
    seen: set[int] = set()
    return {phase: _owned(model, seen) for phase, model in models.items() if model is not None}


def _owned(model: nn.Module, seen: set[int]) -> dict[str, int]:
    """Return the bytes of each kind of module. A module of no known kind counts as its parent's kind."""
    found: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for path, module in model.named_modules():
        above = path.rpartition(".")[0]
        kind = kinds[path] = _KINDS.get(type(module).__name__) or kinds.get(above, "other weights")
        for tensor in _tensors(module):
            storage = tensor.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                found[kind] = found.get(kind, 0) + storage.nbytes()
    return found


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
