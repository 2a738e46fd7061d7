"""Asks a server's FlashInfer how it builds its modules: `specs.py NAME...` prints JSON, an object per module.

Nothing is compiled. FLASHINFER_WORKSPACE_BASE is the folder for ninja's files, and FLASHINFER_CUDA_ARCH_LIST
the GPU that they are for.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(names: list[str]) -> None:
    found = _registered()
    known = {name: _written(found[name]) for name in names if name in found}
    print("\n" + json.dumps(known))


def _registered() -> dict[str, Any]:
    """Return every module that FlashInfer builds ahead of time; it finds them without a GPU, too."""
    from flashinfer.aot import register_default_modules
    from flashinfer.jit.core import jit_spec_registry

    register_default_modules()
    specs: dict[str, Any] = jit_spec_registry.get_all_specs()
    return specs


def _written(spec: Any) -> dict[str, Any]:
    spec.write_ninja()
    return {"folder": str(spec.ninja_path.parent), "lock": str(spec.lock_path), "sources": len(spec.sources)}


if __name__ == "__main__":
    main(sys.argv[1:])
