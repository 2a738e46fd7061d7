"""Makes FlashInfer compare a tactics file with the environment of the server that will read the file."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

COLLECT = "_collect_metadata"


def be(metadata: Mapping[str, str]) -> None:
    """Make FlashInfer report these strings as its environment, in every module that imported the function."""
    for name, module in list(sys.modules.items()):
        real = getattr(module, "__dict__", {}).get(COLLECT) if name.startswith("flashinfer") else None
        if real is not None:
            setattr(module, COLLECT, _told(real, metadata))


def _told(real: Callable[[], dict[str, Any]], metadata: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    """Replace the members that this FlashInfer compares, and add no others."""
    return lambda: {name: metadata.get(name, value) for name, value in real().items()}
