"""Look-ups of tuned Triton configurations and the MoE layers behind them, as data anyone may have written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.record.arguments import LARGEST, check_arguments
from runtime.record.calls import Storage
from runtime.record.checked import expect


@dataclass(frozen=True)
class ConfigLookup:
    """`asked`: the path looked for first; `found`: the one taken, or empty; `given`: parts of its name."""

    kind: str
    asked: str
    found: str
    triton: str
    given: dict[str, Any]

    def __post_init__(self) -> None:
        expect(self.kind in ("moe", "dense"), "moe or dense", "config.kind")


@dataclass(frozen=True)
class LayerCall:
    """One call of SGLang's fused MoE, by its arguments' names, and the paths it asked for: GEMM by GEMM."""

    named: dict[str, Any]
    storages: tuple[Storage, ...]
    files: tuple[str, ...]
    unreplayable: str = ""

    def __post_init__(self) -> None:
        sizes = [storage.bytes for storage in self.storages]
        check_arguments(list(self.named.values()), sizes, "layer.named")
        expect(sum(sizes) <= LARGEST, "of less memory", "layer.storages")
