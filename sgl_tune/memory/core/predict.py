"""Predict a start with the core: on meta tensors, as one rank, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.server.errors import ConfigError, NoRoomForTokens, Unsupported
from runtime.simulate.constants import H200
from sgl_tune.deployment.resolve import not_known
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.of_run import report_of
from sgl_tune.memory.core.start import Start
from sgl_tune.memory.report import Constant, MemoryReport

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
