"""Members of a quantization_config, checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError

Section = Mapping[str, Any]
_MOST = 1 << 20


def section_of(of: Section, name: str) -> Section:
    found = of.get(name)
    if not isinstance(found, Mapping | None):
        raise ConfigError(f"quantization_config: {name[:60]} is {repr(found)[:60]}: an object is needed")
    return found or {}


def whole(of: Section, name: str, least: int, otherwise: int | None = None, most: int = _MOST) -> int:
    found = of.get(name, otherwise)
    found = otherwise if found is None else found
    if type(found) is not int or not least <= found <= most or found == 0:
        raise ConfigError(f"quantization_config: {name} is {repr(found)[:60]}: a whole number is needed")
    return found


def flag(of: Section, name: str) -> bool:
    found = of.get(name)
    if not isinstance(found, bool | None):
        raise ConfigError(f"quantization_config: {name} is {repr(found)[:60]}: true or false is needed")
    return bool(found)


def text(of: Section, name: str) -> str:
    found = of.get(name)
    if not isinstance(found, str | None):
        raise ConfigError(f"quantization_config: {name} is {repr(found)[:60]}: a name is needed")
    return found or ""


def block_of(of: Section, name: str) -> tuple[int, int] | None:
    """Rows and columns."""
    found = of.get(name)
    if found is None:
        return None
    fits = isinstance(found, list) and len(found) == 2
    if not fits or not all(type(one) is int and 0 < one <= _MOST for one in found):
        raise ConfigError(f"quantization_config: {name} is {repr(found)[:60]}: two sizes are needed")
    return found[0], found[1]
