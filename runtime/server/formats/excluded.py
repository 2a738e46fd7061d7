"""Which matrices a quantized checkpoint keeps plain: srt/layers/quantization/utils.py, modelopt_quant.py"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from runtime.server.errors import ConfigError

_KEYS = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")
_HEAD = "lm_head"


@dataclass(frozen=True, slots=True)
class Excluded:
    """Names of matrices and of what they lie in; ModelOpt's may have a `*`."""

    names: tuple[str, ...] = ()

    def linear(self, parts: Sequence[str]) -> bool:
        """Of matrices that are run as one: a server ends where only some of them are named."""
        verdicts = {self.one(part) for part in parts}
        if len(verdicts) > 1:
            raise ConfigError(
                f"quantization_config: one of {', '.join(parts)} is excluded, another is not: they run as one"
            )
        return verdicts.pop()

    def experts(self, name: str) -> bool:
        return self.one(name)

    def one(self, module: str) -> bool:
        return _is_named(self.names, module)

    def below(self, stem: str) -> tuple[str, ...]:
        """What of a layer is named, in order."""
        return tuple(sorted({name.removeprefix(stem) for name in self.names if name.startswith(f"{stem}.")}))


NOTHING = Excluded()


@lru_cache(maxsize=1 << 14)
def _is_named(names: tuple[str, ...], module: str) -> bool:
    """By its own name, by that of what it lies in, or by a pattern."""
    for name in names:
        if "*" in name:
            if fnmatchcase(module, name) or fnmatchcase(module, f"{name}.*"):
                return True
        elif module == name or module.startswith(f"{name}."):
            return True
    return False


def excluded_of(section: Mapping[str, Any]) -> Excluded:
    told = next((section[key] for key in _KEYS if section.get(key) is not None), ())
    if not isinstance(told, (list, tuple)) or not all(isinstance(one, str) for one in told):
        raise ConfigError("quantization_config: what is not quantized is no list of names")
    return Excluded(tuple(name for name in told if name != _HEAD))
