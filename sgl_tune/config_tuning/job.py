"""The jobs and the answers of the processes that compile and measure one layer."""

from dataclasses import dataclass
from typing import Any

from runtime.moe_configs.candidates import Layer
from runtime.moe_configs.search import Decided
from runtime.record.layers import LayerCall


@dataclass(frozen=True)
class LayerJob:
    """The job of tuning one layer. `gpu`: name and compute capability, for a process that opens no GPU."""

    call: LayerCall
    kind: Layer
    buckets: tuple[int, ...]
    arguments: dict[str, Any]
    gpu: tuple[str, int, int]
    processes: int


@dataclass(frozen=True)
class Bucket(Decided):
    """A bucket's result. Without a choice the server's own entries stay: `present`, of both GEMMs."""

    present: tuple[dict[str, Any], dict[str, Any]]

    def entries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return (self.choice.up.entry(), self.choice.down.entry()) if self.choice else self.present


@dataclass(frozen=True)
class Report:
    """A layer's result. `late`: kernels compiled while the GPU waited. `failed`: choices that did not run."""

    buckets: tuple[Bucket, ...]
    versions: dict[str, str]
    seconds: dict[str, float]
    late: int
    failed: dict[str, str]
