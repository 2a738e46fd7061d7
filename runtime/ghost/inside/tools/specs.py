"""Asks a server's FlashInfer how it builds its modules: `specs.py NAME...` prints JSON, an object per module.

Nothing is compiled or downloaded. FLASHINFER_WORKSPACE_BASE is the folder for ninja's files, and
FLASHINFER_CUDA_ARCH_LIST the GPU that they are for.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from typing import Any


def main(names: list[str]) -> None:
    found, failed = _registered()
    known = {name: _written(found[name]) for name in names if name in found}
    reasons = [(name, why) for name in names for source, why in failed.items() if f'"{name}"' in source]
    print("\n" + json.dumps({**{name: {"failed": why} for name, why in reasons}, **known}))


def _registered() -> tuple[dict[str, Any], dict[str, str]]:
    """Return every module that FlashInfer builds ahead of time, which it finds without a GPU, too; and why
    the others have none, by the source of their makers."""
    from flashinfer import aot
    from flashinfer.jit import cubin_loader
    from flashinfer.jit.core import jit_spec_registry

    failed: dict[str, str] = {}
    cubin_loader.download_file = lambda *args, **kwargs: False
    for name, maker in list(vars(aot).items()):
        if name.startswith("gen_"):
            setattr(aot, name, functools.partial(_made, failed, maker))
    aot.register_default_modules()
    return jit_spec_registry.get_all_specs(), failed


def _made(failed: dict[str, str], maker: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a maker. One that fails gives a list without items and with a name, as FlashInfer asks for."""
    try:
        return maker(*args, **kwargs)
    except Exception as error:
        failed[inspect.getsource(maker)] = f"{type(error).__name__}: {error}"
        return type("Unmade", (list,), {"name": ""})()


def _written(spec: Any) -> dict[str, Any]:
    spec.write_ninja()
    return {"folder": str(spec.ninja_path.parent), "lock": str(spec.lock_path), "sources": len(spec.sources)}


if __name__ == "__main__":
    main(sys.argv[1:])
