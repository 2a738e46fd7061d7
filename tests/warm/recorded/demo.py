"""Puts `flashinfer.demo` where FlashInfer's own modules are, its functions marked as they are."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import runtime.flashinfer.inside.calls
import runtime.flashinfer.inside.contexts  # noqa: F401
from runtime.ghost.inside import hooks
from sgl_tune.warm.job import only_for


def load() -> Any:
    only_for("cpu")
    hooks.install()
    import flashinfer  # noqa: F401

    spec = spec_from_file_location("flashinfer.demo", Path(__file__).with_name("demo_op.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
