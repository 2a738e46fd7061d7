"""A config.json as one family reads it: each field is checked where it is read, and noted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runtime.server.bounds import MODEL, check_size
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]
_LARGEST = 1e15


def architecture_of(hf: HF) -> str:
    """The first, which is the one that SGLang takes; empty where none is told."""
    listed = hf.get("architectures")
    if listed is None:
        return ""
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"config.json: architectures is {repr(listed)[:60]}: a list of names is needed")
    return listed[0] if listed else ""


class Fields:
    """What the file leaves out is as its config class says; `null` is what it says."""

    def __init__(self, hf: HF, defaults: Mapping[str, Any]) -> None:
        self._hf, self._defaults = hf, defaults
        self.seen: set[str] = set()
        self.obstacles: list[str] = []
        self.uncomputed: list[str] = []

    def beside(self, told: HF) -> Fields:
        """The same file, of which a part tells some things otherwise."""
        part = Fields({**self._hf, **told}, self._defaults)
        part.seen, part.obstacles, part.uncomputed = self.seen, self.obstacles, self.uncomputed
        return part

    def get(self, name: str) -> Any:
        self.seen.add(name)
        return self._hf[name] if name in self._hf else self._defaults.get(name)

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def tells(self, name: str) -> bool:
        """The file itself, whatever its class says."""
        self.seen.add(name)
        return self._hf.get(name) is not None

    def spelled(self, *names: str) -> str:
        """The one of a field's spellings that the file has, else the config class."""
        self.seen.update(names)
        told = (
            name for source in (self._hf, self._defaults) for name in names if source.get(name) is not None
        )
        return next(told, names[0])

    def size(self, name: str, otherwise: int | None = None) -> int:
        value = self.get(name)
        return otherwise if value is None and otherwise is not None else self.checked_size(name, value)

    @staticmethod
    def checked_size(name: str, value: Any) -> int:
        if type(value) is not int or value < 1:
            raise ConfigError(f"config.json: {name} is {_shown(value)}: a positive whole number is needed")
        if name in MODEL:
            check_size(f"config.json: {name}", value, MODEL[name])
        return value

    def size_or_none(self, name: str) -> int | None:
        return None if self.get(name) is None else self.size(name)

    def count(self, name: str, otherwise: int = 0) -> int:
        """As a size, and 0 means none."""
        return 0 if self.get(name) == 0 else self.size(name, otherwise)

    def number(self, name: str, otherwise: float | None = None) -> float:
        value = self.get(name)
        return checked_number(name, otherwise if value is None else value)

    def positive(self, name: str, otherwise: float | None = None) -> float:
        value = self.number(name, otherwise)
        if value <= 0:
            raise ConfigError(f"config.json: {name} is {value}: it must be above 0")
        return value

    def positive_or_none(self, name: str) -> float | None:
        return None if self.get(name) is None else self.positive(name)

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if not isinstance(value, bool | None):
            raise ConfigError(f"config.json: {name} is {_shown(value)}: true or false is needed")
        return bool(value)

    def section(self, name: str) -> HF:
        value = self.get(name)
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"config.json: {name} is {_shown(value)}: an object is needed")
        return value or {}

    def per_layer(self, name: str, layers: int, kinds: Mapping[str, str]) -> list[str] | None:
        """A list of one word a layer, as we call them."""
        listed = self.get(name)
        if listed is None:
            return None
        if not isinstance(listed, list) or len(listed) < layers:
            raise ConfigError(f"config.json: {name} is {_shown(listed)}: a list of {layers} names is needed")
        for word in listed:
            if not isinstance(word, str) or word not in kinds:
                raise Unsupported(f"config.json: {name} names {_shown(word)}: here are {', '.join(kinds)}")
        return [kinds[word] for word in listed[:layers]]

    def layer_numbers(self, name: str) -> frozenset[int]:
        listed = self.get(name) or []
        if not isinstance(listed, list) or not all(type(one) is int for one in listed):
            raise ConfigError(f"config.json: {name} is {_shown(listed)}: a list of layers is needed")
        return frozenset(listed)

    def only(self, name: str, *served: Any) -> None:
        """Computed as `served` is, and as nothing else."""
        value = self.get(name)
        if not any(value == one and type(value) is type(one) for one in (None, *served)):
            known = " or ".join(_shown(one) for one in served) or "nothing"
            self.cannot(f"{name} is {_shown(value)}: this runtime computes {known}")

    def always(self, told: HF) -> None:
        """Each as it is there, and not left open either."""
        for name, value in told.items():
            own = self.get(name)
            if own != value or type(own) is not type(value):
                self.cannot(f"{name} is {_shown(own)}: this runtime computes {_shown(value)}")

    def cannot(self, why: str) -> None:
        """The model can be planned for, as no size depends on it, and not be computed."""
        self.obstacles.append(f"config.json: {why}")

    def sizes_alone(self, why: str) -> None:
        """... and its memory is known."""
        self.uncomputed.append(f"config.json: {why}")


def checked_number(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) < _LARGEST or math.isnan(value):
        raise ConfigError(f"config.json: {name} is {_shown(value)}: a number is needed")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:60] if not isinstance(value, int) or abs(value) < 10**20 else "a very large number"
