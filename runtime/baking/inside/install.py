"""Registers what compiles aside, around the hooks of the ghost."""

from importlib import import_module
from typing import Any

ROOMS = ("cute", "deep_gemm", "inductor", "modules", "triton")


def before_the_ghost() -> list[Any]:
    """Keep the libraries' own functions. Returns what is called after the ghost has registered its hooks."""
    rooms = [import_module(f"runtime.baking.inside.{room}") for room in ROOMS]
    return [room.wrap for room in rooms if hasattr(room, "wrap")]
