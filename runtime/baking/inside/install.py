"""Registers what compiles aside, around the hooks of the ghost."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ROOMS = ("inductor", "modules", "triton")


def before_the_ghost() -> Any:
    """Keep the libraries' own functions. Returns what is called after the ghost has registered its hooks."""
    rooms = [import_module(f"runtime.baking.inside.{room}") for room in ROOMS]
    return rooms[-1].wrap
