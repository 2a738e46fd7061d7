"""Builds the ghost's libraries for one server's environment, at first use, and keeps them.

They are kept in ROOT/ghost/DIGEST/. DIGEST covers our sources, the functions needed, the compiler and the
machine. A folder appears by one rename, when it is complete. What an interrupted build left behind is removed
by the next build.
"""

import fcntl
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from runtime.ghost.symbols import Needed, Needs, exported, needs

SOURCES = Path(__file__).parent / "c"
_LIST = "libraries.json"  # written last: the files of a whole folder, with their sizes
_BUILDING = ".building-"
_DRIVER = "580.159.04"  # the driver of the H200 whose answers are in attributes.h
_SECONDS = 300
_MACHINES = ("x86_64", "aarch64")
_FLAGS = ("-std=c11", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden")
_NOT_SUPPORTED = {
    "libnvidia-ml.so.1": 3
}  # what a function that is not implemented returns; elsewhere success


class NotBuilt(ValueError):
    """The libraries could not be built or kept. `remedy` is the way out."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True)
class Compiler:
    """The command of a C compiler, and a line that names its version."""

    command: tuple[str, ...]
    version: str


def library(folders: Sequence[Path], cache_root: Path) -> Path:
    """Return the folder of libraries that replace CUDA in the environment with these package folders. Build
    them at first use.

    Raises NotBuilt, or `symbols.NoCuda` for an environment without a torch for CUDA.
    """
    _check_machine()
    wanted = needs(folders)
    compiler = find_compiler(folders)
    folder = cache_root / "ghost" / _digest(wanted, compiler)
    if is_whole(folder):
        return folder
    with _locked(folder.parent):
        if not is_whole(folder):
            _build(wanted, compiler, folder)
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file that the build wrote exists in its full size."""
    try:
        sizes: dict[str, int] = json.loads((folder / _LIST).read_bytes())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def find_compiler(folders: Sequence[Path]) -> Compiler:
    """Return `cc`, else the compiler of the `ziglang` wheel in our Python or in the server's environment."""
    tried = []
    for command in _compilers(folders):
        try:
            asked = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0:
            return Compiler(command, asked.stdout.partition("\n")[0])
        tried.append(command[0])
    failed = f" ({', '.join(tried)} does not run)" if tried else ""
    raise NotBuilt(f"no C compiler here{failed}", "install gcc or clang, or run: pip install ziglang")


def _compilers(folders: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            yield (path,)
    if importlib.util.find_spec("ziglang"):
        yield (sys.executable, "-m", "ziglang", "cc")
    for folder in folders:
        if (zig := folder / "ziglang" / "zig").is_file():
            yield (str(zig), "cc")


def _check_machine() -> None:
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise NotBuilt(
            f"a GPU that is not there needs Linux on {' or '.join(_MACHINES)}, and this is "
            f"{sys.platform} on {platform.machine()}",
            "run this on such a machine",
        )


def _digest(wanted: Needs, compiler: Compiler) -> str:
    digest = sha256(repr((wanted, compiler, _FLAGS, _DRIVER, platform.machine())).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:32]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: of two first uses at the same time, one builds and the other waits."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", flags, 0o600)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        os.close(descriptor)


def _unwritable(folder: Path, error: OSError) -> NotBuilt:
    return NotBuilt(
        f"{folder}: nothing can be written there ({error.strerror or error})",
        "name a folder that you may write to with --cache-dir, or set XDG_CACHE_HOME",
    )


def _build(wanted: Needs, compiler: Compiler, folder: Path) -> None:
    for left in folder.parent.glob(f"{_BUILDING}*"):  # nobody else builds: the lock is held
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=folder.parent))
    try:
        _compile_all(wanted, compiler, work)
        sizes = {path.name: path.stat().st_size for path in sorted(work.iterdir())}
        (work / _LIST).write_text(json.dumps(sizes))
        work.chmod(0o755)
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile_all(wanted: Needs, compiler: Compiler, work: Path) -> None:
    sources = sorted(SOURCES.glob("*.c"))
    defines = [f"-D{name}={value}" for name, value in wanted.versions] + [f'-DDRIVER_VERSION="{_DRIVER}"']
    ghost = work / "libghost.so"
    soname = f"-Wl,-soname,{ghost.name}"
    _compile(compiler, [*defines, *map(str, sources), soname, "-o", str(ghost), "-ldl", "-lpthread"])
    there = exported(ghost)
    for one in wanted.libraries:
        _compile_stubs(one, there, compiler, work)
    for name in ("libcuda.so", "libnvidia-ml.so", "libcudart.so"):
        target = f"{name}.{wanted.major}" if name == "libcudart.so" else f"{name}.1"
        if (work / target).is_file():
            (work / name).symlink_to(target)


def _compile_stubs(one: Needed, there: frozenset[str], compiler: Compiler, work: Path) -> None:
    """Build one library: its name, the versions that programs import, and stubs for what we lack."""
    source, script, out = work / "stubs.c", work / "stubs.map", work / one.soname
    source.write_text(stub_source(one, there))
    script.write_text(version_script(one))
    options = [f"-Wl,-soname,{one.soname}", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
    options.append(f"-Wl,--version-script={script}")
    _compile(
        compiler, [*options, "-fvisibility=default", str(source), "-o", str(out), f"-L{work}", "-lghost"]
    )
    source.unlink()
    script.unlink()


def stub_source(one: Needed, there: frozenset[str]) -> str:
    """Return C in which each function reports its name when first called. An `int` of 0 is also a null
    pointer."""
    status = _NOT_SUPPORTED.get(one.soname, 0)
    lines = [
        "void ghost_stub(const char *name, unsigned *seen);",
        f"#define STUB(f) int f(void) {{ static unsigned seen; ghost_stub(#f, &seen); return {status}; }}",
    ]
    names = sorted({name for name, _ in one.functions if name.isidentifier()} - there)
    return "\n".join([*lines, *(f"STUB({name})" for name in names), ""])


def version_script(one: Needed) -> str:
    """Return a linker script with a node for each imported version, which the loader looks for here.

    A library without versions gets a node named GHOST, because glibc's loader aborts if there is no node.
    """
    by_version: dict[str, list[str]] = {}
    for name, version in one.functions:
        if version:
            by_version.setdefault(version, []).append(name)
    if len(by_version) < 2:
        return f"{next(iter(by_version), 'GHOST')} {{ global: *; }};\n"
    return "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
        for version, names in by_version.items()
    )


def _compile(compiler: Compiler, arguments: list[str]) -> None:
    command = [*compiler.command, *_FLAGS, *arguments]
    try:
        made = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(
            f"{compiler.command[0]} took longer than {_SECONDS} s", "try again on a quieter machine"
        ) from None
    if made.returncode:
        said = (
            [line for line in made.stderr.splitlines() if "error" in line]
            or made.stderr.splitlines()
            or ["nothing"]
        )
        raise NotBuilt(
            f"{compiler.command[0]} ({compiler.version}) failed: {said[0]}",
            "install gcc or clang with the C library's headers, or run: pip install ziglang",
        )
