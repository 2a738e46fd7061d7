"""A folder full of traps: a file for every name that might be imported, which says so when it runs."""

import sys
from pathlib import Path

OURS = """
torch flashinfer transformers safetensors numpy triton typer click rich filelock tomli shellingham packaging
runtime sgl_tune tests sitecustomize usercustomize
"""


def names() -> list[str]:
    """Of the standard library, of our dependencies, and of whatever is installed beside them."""
    installed = {
        entry.stem if entry.suffix == ".py" else entry.name
        for place in map(Path, sys.path)
        if place.name == "site-packages" and place.is_dir()
        for entry in place.iterdir()
        if entry.suffix in ("", ".py") and entry.stem.isidentifier()
    }
    return sorted({*sys.stdlib_module_names, *OURS.split(), *installed} - {"__main__"})


def fill(folder: Path, marks: Path) -> int:
    """Each trap leaves a file of its name in `marks`. How many were laid."""
    folder.mkdir(parents=True, exist_ok=True)
    marks.mkdir(exist_ok=True)
    for name in names():
        trap = folder / f"{name}.py"
        trap.write_text(f"open({str(marks / name)!r}, 'w').close()\n")
    return len(names())
