"""Published checkpoints on servers that keep weights in the host's memory: what SGLang's offloader leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from runtime.devices.meta import Meta
from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.host_weights import HostWeights
from runtime.server.offloading import walk_of
from runtime.server.parallel import stage_layers
from sgl_tune.deployment.deployment import Deployment
from tests.memory.checkpoints import DATA
from tests.memory.published_servers import deployed_at

RECORDED = DATA / "offloaded.json"
_BYTES = 1 << 42  # of a GPU that has room for any of them
_RELEASES = ("0.5.12", "0.5.17", "0.5.20", "0.5.23")


@dataclass(frozen=True, slots=True)
class Case:
    release: str
    model: str
    place: str  # tp, or tp/ep/dp
    gigabytes: int
    stage: tuple[int, int] = (0, 1)  # which one, and of how many

    @property
    def argv(self) -> list[str]:
        stages = ["--pp-size", str(self.stage[1])] if self.stage[1] > 1 else []
        return ["--cpu-offload-gb", str(self.gigabytes), *stages]

    @property
    def key(self) -> str:
        stage = f" {self.stage[0]}" if self.stage[1] > 1 else ""
        return f"{self.release} {self.model} {self.place} {' '.join(self.argv)}{stage}"


def cases() -> Iterator[Case]:
    for release in _RELEASES:
        yield Case(release, "meta-llama/Llama-3.1-8B-Instruct", "1", 5)
        yield Case(release, "meta-llama/Llama-3.1-70B-Instruct", "4", 20)
        yield Case(release, "meta-llama/Llama-3.1-70B-Instruct", "4", 900)
        yield Case(release, "Qwen/Qwen3-32B", "2", 11)
        yield Case(release, "Qwen/Qwen3-32B", "2", 7, (1, 2))
        yield Case(release, "Qwen/Qwen3-30B-A3B", "1", 33)
        yield Case(release, "Qwen/Qwen3-30B-A3B", "4/4/4", 6)
        yield Case(release, "Qwen/Qwen2.5-7B-Instruct", "1", 4)
        yield Case(release, "mistralai/Mixtral-8x7B-Instruct-v0.1", "2", 30)


def deployed(case: Case) -> Deployment:
    found = deployed_at(case.model, case.place, case.release, case.argv)
    assert found is not None
    return found


def left(case: Case, found: Deployment) -> dict[str, Any]:
    """Of the stage's last rank: bytes on its GPU, and those of its layers that are away."""
    return told(*given_up(found, case.stage[0], found.runtime.offloaded))


def given_up(found: Deployment, stage: int, budget: int) -> tuple[list[list[int]], int]:
    """Sizes that each layer gives up, and bytes that stay."""
    model, tp = found.model, found.parallel.tp
    walk, layers = walk_of(model, found.runtime), stage_layers(model.num_layers, found.parallel, stage)
    comm, device = VirtualCommunicator(found.parallel, stage * tp + tp - 1), Meta(_BYTES)
    with device.active(), torch.no_grad():
        host = HostWeights(device, budget, walk) if walk else None
        made = Decoder(model, found.runtime, comm, device.torch_device, layers, host=host)
        away = [[*one.away] for one in made.layers if one.away]
        held = sum(one.nbytes for one in made.parameters()) - (host.bytes if host else 0)
    return away, held


def told(away: list[list[int]], held: int) -> dict[str, Any]:
    return {"held": held, "away": sum(map(sum, away)), "layers": len(away), "last": away[-1]}
