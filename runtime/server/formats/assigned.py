"""Which kind of quantization each matrix of a checkpoint has, by its name; None is plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.server.formats.excluded import NOTHING, Excluded


@dataclass(frozen=True, slots=True)
class Kind:
    """`per`: what has a scale of its own. A static one has a scale for what is multiplied, too."""

    name: Literal["fp8", "nvfp4", "mxfp4"]
    per: Literal["tensor", "block", "group"] = "group"
    block: tuple[int, int] = (128, 128)
    group: int = 16
    is_static: bool = False


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
