"""The process that asks FlashInfer for its modules. Each gets its folder and its build.ninja, as at a
start. Nothing is compiled here, and no GPU is needed: FLASHINFER_CUDA_ARCH_LIST names the target's."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from sgl_tune.processes.child import Child

ASK, READY, REFUSED, DONE = "ask", "ready", "refused", "done"
_FIRST_LINE = 300


def main(child: Child) -> None:
    command = child.command()
    os.environ.update(command["environment"])
    for module in command["modules"]:
        try:
            child.say(READY, name=module["name"], **_written(module))
        except Exception as error:  # a module that FlashInfer refuses does not stop the others
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            child.say(REFUSED, name=module["name"], why=why[:_FIRST_LINE])
    child.say(DONE)


def _written(module: dict[str, Any]) -> dict[str, Any]:
    place, _, name = module["maker"].partition(":")
    maker = getattr(import_module(f"flashinfer.jit.{place}"), name)
    spec = maker(*map(_argument, module["arguments"]))
    if spec.name != module["name"]:
        raise ValueError(f"FlashInfer names it {spec.name}")
    offered = bool(spec.is_aot)
    if not offered:
        spec.write_ninja()
    return {
        "folder": str(spec.ninja_path.parent),
        "lock": str(spec.lock_path),
        "sources": len(spec.sources),
        "offered": offered,
    }


def _argument(value: Any) -> Any:
    """Return the torch dtype that a word names, or the word."""
    import torch

    found = getattr(torch, value, None) if isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else value
