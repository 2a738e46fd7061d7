"""How a Python process is started so that nothing of the working folder is imported, on 3.10 too."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BOOT = Path(__file__).resolve().with_name("boot.py")


def boot_command(module: str, *descriptors: int) -> list[str]:
    """`module` is imported and its `main` called, with the pipes of these descriptors."""
    return [sys.executable, str(_BOOT), str(ROOT), str(os.getpid()), *map(str, descriptors), module]


def safe_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """PYTHONPATH is the user's word, but for its places that mean whatever folder we happen to be in."""
    settings = dict(os.environ if environ is None else environ)
    places = [
        place for place in settings.pop("PYTHONPATH", "").split(os.pathsep) if Path(place).is_absolute()
    ]
    if places:
        settings["PYTHONPATH"] = os.pathsep.join(places)
    return {**settings, "PYTHONSAFEPATH": "1"}  # for what our processes start: heard from 3.11 on
