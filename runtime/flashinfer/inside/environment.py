"""The environment that FlashInfer compares a file of tactics with: that of the server which will read it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

COLLECT = "_collect_metadata"


def be(metadata: Mapping[str, str]) -> None:
    """Have FlashInfer say these strings of itself, wherever the function that collects them is known."""
    for name, module in list(sys.modules.items()):
        real = getattr(module, "__dict__", {}).get(COLLECT) if name.startswith("flashinfer") else None
        if real is not None:
            setattr(module, COLLECT, _told(real, metadata))


def _told(real: Callable[[], dict[str, Any]], metadata: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    def collect() -> dict[str, Any]:
        """A member that this FlashInfer does not compare stays out."""
        found = real()
        return {name: metadata.get(name, value) for name, value in found.items()}

    return collect
