"""The sizes in a config.json's vision_config, or beside it: each is needed, or is as its class says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from runtime.server.bounds import WIDTH, check_size
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]


class Section:
    """Without a `name`, the file itself."""

    def __init__(self, hf: HF, name: str = "vision_config", defaults: HF | None = None) -> None:
        found = hf.get(name) if name else hf
        if not isinstance(found, Mapping | None):
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}: an object is needed")
        self.where = f"config.json: {name}: " if name else "config.json: "
        self._sources = (found or {}, defaults or {})

    def get(self, *names: str) -> Any:
        """By the first spelling that the file has, else its class."""
        told = (one[name] for one in self._sources for name in names if one.get(name) is not None)
        return next(told, None)

    def size(self, *names: str) -> int:
        """Of a pair, its first."""
        value = self.get(*names)
        where = f"{self.where}{names[0]}"
        if isinstance(value, list) and value:
            value = value[0]
        if type(value) is not int or value < 1:
            raise ConfigError(f"{where} is {repr(value)[:60]}: a positive whole number is needed")
        check_size(where, value, WIDTH)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.get(name))

    def count_of(self, name: str) -> int:
        listed = self.get(name) or []
        if not isinstance(listed, list):
            raise ConfigError(f"{self.where}{name} is {repr(listed)[:60]}: a list is needed")
        return len(listed)


def object_in(hf: HF, name: str) -> HF:
    found = hf.get(name)
    if not isinstance(found, Mapping):
        raise ConfigError(f"config.json: {name} is {found!r:.60}: an object is needed")
    return found


def known_section(
    hf: HF, name: str, fixed: Mapping[str, tuple[Any, ...]], others: Collection[str] = ()
) -> Section:
    """One that tells what is `fixed` as it is there, or leaves it out where None is among that, and of what
    else is read `others` alone."""
    found, section = object_in(hf, name), Section(hf, name)
    for one, known in fixed.items():
        if found.get(one) not in known:
            raise Unsupported(f"{section.where}{one} is {found.get(one)!r:.60}: here is {known[-1]!r}")
    for one in found:
        if one not in fixed and one not in others:
            raise Unsupported(f"{section.where}{str(one)[:60]}: what becomes of it is not known here")
    return section
