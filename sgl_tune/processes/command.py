"""Start a Python process so that it imports nothing from the current folder, on 3.10 too."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BOOT = Path(__file__).resolve().with_name("boot.py")


@dataclass(frozen=True)
class Python:
    """An interpreter, with variables that its processes get beside ours."""

    path: str
    variables: Mapping[str, str] = field(default_factory=dict)


THIS = Python(sys.executable)


def boot_command(module: str, *descriptors: int, python: Python = THIS) -> list[str]:
    """Return the command that imports `module` and calls its `main` with the pipes of these descriptors."""
    return [python.path, str(_BOOT), str(ROOT), str(os.getpid()), *map(str, descriptors), module]


def safe_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without relative paths in PYTHONPATH, which depend on the current folder."""
    settings = dict(os.environ if environ is None else environ)
    places = [
        place for place in settings.pop("PYTHONPATH", "").split(os.pathsep) if Path(place).is_absolute()
    ]
    if places:
        settings["PYTHONPATH"] = os.pathsep.join(places)
    return {**settings, "PYTHONSAFEPATH": "1"}  # for our processes' children; Python reads it since 3.11
