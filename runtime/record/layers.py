"""Look-ups of tuned Triton configurations and their MoE layers, as data that anyone may have written."""

from dataclasses import dataclass
from typing import Any

from runtime.record.arguments import LARGEST, check_arguments
from runtime.record.calls import Storage
from runtime.record.checked import expect


@dataclass(frozen=True)
class ConfigLookup:
    """A look-up: the path looked for first (`asked`), the path used or "" (`found`), parts of its name."""

    kind: str
    asked: str
    found: str
    triton: str
    given: dict[str, Any]

    def __post_init__(self) -> None:
        expect(self.kind in ("moe", "dense"), "moe or dense", "config.kind")


@dataclass(frozen=True)
class LayerCall:
    """One call of SGLang's fused MoE: its named arguments, and the paths looked for, per GEMM."""

    named: dict[str, Any]
    storages: tuple[Storage, ...]
    files: tuple[str, ...]
    unreplayable: str = ""

    def __post_init__(self) -> None:
        sizes = [storage.bytes for storage in self.storages]
        check_arguments(list(self.named.values()), sizes, "layer.named")
        expect(sum(sizes) <= LARGEST, "of less memory", "layer.storages")
