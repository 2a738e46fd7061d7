"""The tiny models of every family: what stands in a file beside this one is known."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tests.runtime.families.tiny import Tiny

_MODULES = (
    importlib.import_module(f"{__package__}.{module.name}")
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if module.name not in ("choices", "known", "reference", "sizes", "tiny")
)
TINY: dict[str, Tiny] = {name: tiny for module in _MODULES for name, tiny in module.TINY.items()}
WRAPPED = tuple(name for name, tiny in TINY.items() if tiny.tower is not None)
FAMILIES = tuple(name for name in TINY if name not in WRAPPED)
MOE_FAMILIES = tuple(name for name in FAMILIES if any("experts" in one for one in TINY[name].sizes))
