"""Pythons in which a stock SGLang starts on the ghost: made once, outside the clone, and checked at each use.

`python -m tests.ghost.environments smallest` (or referee) makes one and prints its Python, size and seconds.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.servers.add import check_disk
from sgl_tune.servers.installed import normal, packages_in
from sgl_tune.servers.pip import Pip, make_venv
from sgl_tune.servers.plan import Wheel, chosen_by_pip
from tests.ghost.wheel_store import Store

HERE = Path(__file__).resolve().parent
LATE = HERE / "late_modules.py"
WORK = Path(os.environ.get("SGL_TUNE_ENVIRONMENTS", Path("~/.cache/sgl-tune-tests").expanduser()))
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_RESOLVE = ("install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:")
_MARK = "environment.json"
# What no start here has: other GPUs' kernels, FA3, and what the machine of the measured starts had not.
_NEVER = r"sgl_kernel/(?:flash_ops|infllm_ops|sm100/).*|sglang/(?:multimodal_gen|test)/.*|.*\.a"


@dataclass(frozen=True)
class Recipe:
    """`versions`: the file that lists every package; `left_out`: the files that are not installed;
    `emptied`: modules that are there and hold nothing; `late`: whether late_modules.py is installed."""

    name: str
    versions: Path
    left_out: str
    emptied: tuple[str, ...] = ("sgl_kernel/flash_ops.py",)
    bytes: int = 5_000_000_000
    late: bool = False

    @property
    def text(self) -> str:
        return self.versions.read_text()

    @property
    def folder(self) -> Path:
        late = LATE.read_text() if self.late else ""
        told = f"{self.text}{self.left_out}{self.emptied}{late}{VERSION}"
        return WORK / f"{self.name}-{VERSION}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def wanted(self, name: str) -> bool:
        return re.fullmatch(self.left_out, name) is None


# As the starts in benchmarks/real_starts were measured: SGLang 0.5.17 with FlashInfer 0.7.2, without FA3,
# deep_gemm and cutlass-dsl.
REFEREE = Recipe("referee", HERE / "referee.txt", _NEVER, late=True)
# What a start of a dense model with Triton's attention opens, and no more.
SMALLEST = Recipe(
    "smallest",
    HERE / "smallest.txt",
    rf"{_NEVER}|sgl_kernel/flashmla_ops.*|flashinfer/data/.*|torch/(?:include|test|share)/.*"
    r"|torch/bin/(?!torch_shm_manager).*"
    r"|torch/lib/libtorch_cuda_linalg\.so|triton/(?:instrumentation/|backends/nvidia/(?:bin/(?!ptxas$)|lib/cupti/)).*",
)


def python_of(recipe: Recipe) -> Path:
    """Return the Python of this environment, which is made if it is missing or changed."""
    folder = recipe.folder
    with _alone() as lock:
        if not _is_as_made(folder):
            _make(recipe, lock)
    return folder / "bin/python3"


def _make(recipe: Recipe, lock: int) -> None:
    folder, began = recipe.folder, time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    check_disk(WORK, recipe.bytes)
    pip = _pip(lock)
    wheels = _chosen(recipe, pip)
    store = Store(WORK / "wheels", pip)
    downloaded = store.fill(wheels, recipe.wanted)
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", folder], check=True)
    packages = folder / f"lib/python{VERSION}/site-packages"
    for wheel in wheels:
        store.link(wheel, packages, recipe.wanted)
    for name in recipe.emptied:
        (packages / name).write_bytes(b"")
    if recipe.late:
        (packages / LATE.name).write_bytes(LATE.read_bytes())
        (packages / "late_modules.pth").write_text("import late_modules; late_modules.install()\n")
    _check_versions(recipe, packages)
    for _ in pip.work("compile", {"packages": str(packages)}):
        pass
    told = {
        "digest": _digest(packages),
        "downloaded": downloaded,
        "bytes": sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_dir()),
        "seconds": round(time.monotonic() - began, 1),
    }
    part = folder / f"{_MARK}.part"
    part.write_text(json.dumps(told))
    part.replace(folder / _MARK)


def _chosen(recipe: Recipe, pip: Pip) -> list[Wheel]:
    report = WORK / "report.json"
    pip.run(*_RESOLVE, "--use-feature=fast-deps", "--report", str(report), "-r", str(recipe.versions))
    try:
        return chosen_by_pip(report)
    finally:
        report.unlink(missing_ok=True)


def _pip(lock: int) -> Pip:
    """Return a pip that is kept beside the environments, in a venv of its own."""
    venv, log = WORK / f"pip-{VERSION}", WORK / "pip.log"
    if not ((venv / "made").exists() and (venv / "bin/python3").exists()):  # a Python may be gone
        make_venv(venv, log, lock)
        Pip(venv / "bin/python3", log, lock).run("install", "--upgrade", "pip<27")
        (venv / "made").touch()
    return Pip(venv / "bin/python3", log, lock)


def _check_versions(recipe: Recipe, packages: Path) -> None:
    """Check that the environment has exactly the listed versions, and no other package."""
    found = {name: package.version for name, package in packages_in([packages]).items()}
    assert found == listed(recipe), sorted(found.items() ^ listed(recipe).items())


def listed(recipe: Recipe) -> dict[str, str]:
    """Return the packages in this Python's environment and their versions."""
    found = {}
    for line in recipe.text.splitlines():
        wanted, _, marker = line.partition(";")
        if not marker or _holds(marker):
            name, _, version = wanted.strip().partition("==")
            found[normal(name)] = version
    return found


def _holds(marker: str) -> bool:
    match = re.fullmatch(r'\s*python_version (<|>=) "3\.(\d+)"\s*', marker)
    assert match, marker
    return (sys.version_info.minor < int(match[2])) == (match[1] == "<")


def _is_as_made(folder: Path) -> bool:
    try:
        made = json.loads((folder / _MARK).read_text())
    except FileNotFoundError:
        return False
    return bool(made["digest"] == _digest(folder / f"lib/python{VERSION}/site-packages"))


def _digest(packages: Path) -> str:
    """Return a digest of every file's name, size and time, except bytecode."""
    digest = hashlib.sha256()
    for above, folders, names in os.walk(packages):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            status = (Path(above) / name).lstat()
            told = f"{os.path.relpath(above, packages)}/{name} {status.st_size} {status.st_mtime_ns}\n"
            digest.update(told.encode())
    return digest.hexdigest()


@contextmanager
def _alone() -> Iterator[int]:
    """Lock, so that of two test runs at once one makes the environment and the other waits."""
    WORK.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(WORK / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield held
    finally:
        os.close(held)


def main(name: str) -> None:
    recipe = {one.name: one for one in (REFEREE, SMALLEST)}[name]
    began = time.monotonic()
    python = python_of(recipe)
    made = json.loads((recipe.folder / _MARK).read_text())
    print(f"{python}\n{made['bytes'] / 1e9:.2f} GB, {made['downloaded'] / 1e9:.2f} GB downloaded")
    print(f"{time.monotonic() - began:.1f} s now, {made['seconds']} s when it was made")


if __name__ == "__main__":
    main(sys.argv[1])
