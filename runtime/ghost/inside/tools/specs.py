"""Asks a server's FlashInfer how it builds its modules: `specs.py MODULES` prints JSON, an object per module.

MODULES is a JSON list of objects: a `name` alone is one that FlashInfer builds ahead of time; else `maker`, a
function MODULE:NAME, below `flashinfer.jit` if not of `flashinfer`, makes it. Nothing is compiled.
FLASHINFER_WORKSPACE_BASE is the folder for files of ninja, FLASHINFER_CUDA_ARCH_LIST the GPU of them.
"""

import functools
import inspect
import json
import sys
from importlib import import_module
from typing import Any

_FIRST_LINE = 300


def main(modules: list[dict[str, Any]]) -> None:
    names = [one["name"] for one in modules if "maker" not in one]
    found, failed = _registered() if names else ({}, {})
    told = {
        name: {"failed": why} for name in names for source, why in failed.items() if f'"{name}"' in source
    }
    told |= {name: _written(found[name]) for name in names if name in found}
    for module in modules:
        if "maker" in module:
            told[module["name"]] = _of_maker(module)
    print("\n" + json.dumps(told))


def _of_maker(module: dict[str, Any]) -> dict[str, Any]:
    """Make a module as a start did. One that FlashInfer refuses does not stop the others."""
    place, _, name = module["maker"].partition(":")
    try:
        where = import_module(place if place.startswith("flashinfer.") else f"flashinfer.jit.{place}")
        spec = getattr(where, name)(*map(_argument, module["arguments"]))
        if spec.name != module["name"]:
            raise ValueError(f"FlashInfer names it {spec.name}")
        return {"offered": True} if spec.is_aot else _written(spec)
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return {"failed": why[:_FIRST_LINE]}


def _argument(value: Any) -> Any:
    """Return the torch dtype that a word names, or the word."""
    import torch

    found = getattr(torch, value, None) if isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else value


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
    main(json.loads(sys.argv[1]))
