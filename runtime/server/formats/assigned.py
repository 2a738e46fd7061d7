"""Which kind of quantization each matrix of a checkpoint has, by its name; None is plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.server.formats.excluded import NOTHING, Excluded
from runtime.server.formats.kinds import Kind


@dataclass(frozen=True, slots=True)
class Quantized:
    method: str | None = None  # under SGLang's name
    linear: Kind | None = None
    experts: Kind | None = None
    excluded: Excluded = NOTHING

    @property
    def block(self) -> tuple[int, int] | None:
        """Of fp8 in blocks."""
        kind = self.linear
        return kind.block if kind is not None and kind.per == "block" else None

    def of_linear(self, parts: Sequence[str]) -> Kind | None:
        """Of matrices that are run as one."""
        return None if self.linear is None or self.excluded.linear(parts) else self.linear

    def of_experts(self, name: str) -> Kind | None:
        return None if self.experts is None or self.excluded.one(name) else self.experts


UNQUANTIZED = Quantized()
