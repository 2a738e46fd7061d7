"""A library to link with where there is no driver: it has the names of the driver's functions."""

import re
import subprocess
from pathlib import Path

from runtime.ghost.build import find_compiler
from runtime.ghost.symbols import exported

_DRIVERS = re.compile(r"cu[A-Z]")
_SECONDS = 60


def link_driver(ghost: Path, folder: Path) -> None:
    """Make it in the folder. A linker may leave out a library that has none of the names it looks for, and
    what was linked so could be loaded by no other program."""
    library, source = folder / "libcuda.so.1", folder / "libcuda.c"
    if library.exists():
        return
    folder.mkdir(exist_ok=True)
    names = sorted(one for one in exported(ghost / "libghost.so") if _DRIVERS.match(one))
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    compiler = find_compiler(()).command
    flags = ("-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library)
    subprocess.run([*compiler, *flags, source], check=True, timeout=_SECONDS)
    (folder / "libcuda.so").symlink_to(library.name)
