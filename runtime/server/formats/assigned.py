"""Which kind of quantization each matrix of a checkpoint has, by its name; None is plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.server.excluded import NOTHING, Excluded
from runtime.server.formats.kinds import Kind


@dataclass(frozen=True, slots=True)
class Quantized:
    linear: Kind | None = None
    experts: Kind | None = None
    excluded: Excluded = NOTHING

    def of_linear(self, parts: Sequence[str]) -> Kind | None:
        """Of matrices that are run as one."""
        return None if self.linear is None or self.excluded.linear(parts) else self.linear

    def of_experts(self, name: str) -> Kind | None:
        return None if self.experts is None or self.excluded.experts(name) else self.experts

    def of_layer(self, stem: str) -> tuple[str, ...]:
        """Equal for layers whose matrices are stored alike; `stem` is the layer's own name."""
        return self.excluded.below(stem)


UNQUANTIZED = Quantized()
