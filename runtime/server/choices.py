"""The arguments on their way from asked to resolved: what each became, and the rule that made it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.flags import flags_of
from runtime.server.gpus import GpuModel
from runtime.server.releases import NEWEST, Release
from runtime.server.version_number import number

DISABLED = "disabled"
ASKED_FOR = "as asked"


@dataclass(frozen=True, slots=True)
class Reason:
    """A rule that was followed, and the value that it left."""

    value: Any
    rule: str


@dataclass(slots=True)
class Graphs:
    """One phase's CUDA graphs; `sizes` are requests when decoding and tokens in a prefill."""

    phase: str
    backend: str = "full"
    max_bs: int | None = None
    sizes: tuple[int, ...] | None = None
    # What of "backend", "max_bs" and "sizes" was asked for: rules leave it.
    locked: set[str] = field(default_factory=set)
    # The rules behind how large they are, and behind there being none.
    limit: str = ASKED_FOR
    off: str = ""

    @property
    def is_on(self) -> bool:
        return self.backend != DISABLED

    def lock(self, **asked: Any) -> None:
        for name, value in asked.items():
            setattr(self, name, value)
            self.locked.add(name)

    def lock_off(self, why: str) -> None:
        self.lock(backend=DISABLED)
        self.off = why


class Choices:
    """Reads like the arguments themselves; `settle` is the only way to change one."""

    def __init__(
        self,
        asked: Asked,
        model: Checkpoint,
        draft: Checkpoint | None,
        gpu: GpuModel,
        release: Release,
        environ: Mapping[str, str],
    ) -> None:
        self.asked, self.model, self.draft_model = asked, model, draft
        self.gpu, self.release, self.environ = gpu, release, environ
        self.decode, self.prefill = Graphs("decode"), Graphs("prefill")
        self.reasons: dict[str, tuple[Reason, ...]] = {}
        self._settled: dict[str, Any] = {"model_quantization": None}

    def __getattr__(self, name: str) -> Any:
        settled: dict[str, Any] = object.__getattribute__(self, "_settled")
        if name in settled:
            return settled[name]
        asked: Asked = object.__getattribute__(self, "asked")
        if hasattr(asked, name):
            return getattr(asked, name)
        return asked.others[name] if name in asked.others else unset(self.release, name)

    def settle(self, why: str, **values: Any) -> None:
        for name, value in values.items():
            if value != getattr(self, name, None):
                self._settled[name] = value
                self.because(why, **{name: value})

    def because(self, rule: str, **values: Any) -> None:
        """Says why, of a value that is settled elsewhere."""
        for name, value in values.items():
            self.reasons[name] = (*self.reasons.get(name, ()), Reason(value, rule))

    def disable(self, graphs: Graphs, why: str) -> None:
        if graphs.is_on:
            graphs.backend, graphs.off = DISABLED, why


def unset(release: Release, name: str) -> Any:
    """An argument that nobody gave: None, too, where the release has none of that name."""
    return arguments(release.version).get(name)


@lru_cache
def arguments(version: str) -> Mapping[str, Any]:
    """All that a release has, unset. Of the newest that is known, where that release is not."""
    newer = number(version) > NEWEST.number
    return flags_of(NEWEST.version if newer else version).defaults


def is_on(variable: str | None) -> bool:
    """An environment flag as SGLang reads it."""
    return (variable or "").lower() in ("true", "1", "yes", "y")
