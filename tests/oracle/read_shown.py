"""Which of a release's classes have what SGLang asks a target for, by its draft's algorithm and for EPLB.

Runs in the oracle's interpreter, and prints one JSON object. Modules that want more than it has are left out.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

from tests.oracle.inside import enter, keep_output

_ASKED = {
    "EAGLE3": ("set_eagle3_layers_to_capture",),
    "DFLASH": ("set_dflash_layers_to_capture",),
    "DSPARK": ("set_dspark_layers_to_capture", "set_dflash_layers_to_capture"),
    "EPLB": ("get_model_config_for_expert_location",),
}


def main() -> None:
    enter()
    out = keep_output()
    shown = {one.__name__: [name for name in _ASKED if _has(one, name)] for one in _classes()}
    print(json.dumps(shown), file=out, flush=True)


def _classes() -> Iterator[type]:
    import sglang.srt.models as models

    for module in pkgutil.iter_modules(models.__path__):
        try:
            entry = getattr(importlib.import_module(f"{models.__name__}.{module.name}"), "EntryClass", ())
        except (ImportError, AttributeError, RuntimeError):
            continue
        yield from entry if isinstance(entry, list | tuple) else (entry,)


def _has(one: type, algorithm: str) -> bool:
    return any(hasattr(one, asked) for asked in _ASKED[algorithm])


if __name__ == "__main__":
    main()
