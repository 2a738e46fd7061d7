"""Weights that a server keeps in the host's memory, as far as a GPU sees them."""

from __future__ import annotations

from runtime.devices.base import Device
from runtime.models.decoder import Decoder
from runtime.models.host_weights import HostWeights
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.offloading import walk_of
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder


class Hosting:
    """The part of a model runner that has them leave its GPU."""

    model: ModelConfig
    runtime: RuntimeConfig
    device: Device
    options: StartOptions
    recorder: PhaseRecorder
    decoder: Decoder
    host_weights: HostWeights | None

    def make_host_weights(self) -> HostWeights | None:
        walk = walk_of(self.model, self.runtime) if self.options.as_sglang else None
        asked = self.runtime.offloaded if walk else 0
        self.host_weights = HostWeights(self.device, asked, walk) if asked and walk else None
        return self.host_weights

    def visit_host_weights(self) -> None:
        host = self.host_weights
        if host is None:
            return
        host.visit(self.decoder.layers)
        self.device.claim(f"page tables of the host's memory:{host.page_tables}")
        self.recorder.tell(host_weight_bytes=host.bytes, host_weight_pages=host.pinned)
