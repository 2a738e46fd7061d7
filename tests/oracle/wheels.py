"""SGLang's published wheels, unpacked, and an interpreter that can import them, apart from our own venv."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WORK = Path(os.environ.get("SGL_TUNE_ORACLE", Path(__file__).parents[2] / ".oracle"))
# What SGLang imports when it reads a command line. What is heavier is stubbed, see machine.py.
IMPORTED = """
aiohttp cloudpickle compressed-tensors datasets dill distro fastapi httpx interegular msgspec openai orjson
partial_json_parser pillow prometheus-client psutil pybase64 pydantic python-multipart pyzmq scipy
sentencepiece setproctitle tiktoken triton uvicorn xxhash zstandard
"""


@dataclass(frozen=True)
class Wheel:
    """One release: where it is unpacked, and the packages that it pins."""

    release: str
    folder: Path
    transformers: str
    flashinfer: str


def wheel_of(release: str, work: Path) -> Wheel:
    folder = work / "unpacked" / release
    if not (folder / "sglang").is_dir():
        _unpack(_download(release, work), folder)
    metadata = next(folder.glob("sglang-*.dist-info/METADATA")).read_text()
    return Wheel(release, folder, _pin(metadata, "transformers"), _pin(metadata, "flashinfer[_-]python"))


def transformers_of(wheel: Wheel, work: Path) -> Path:
    folder = work / "transformers" / wheel.transformers
    if not folder.is_dir():
        requirement = f"transformers=={wheel.transformers}"
        _pip(work, "install", "--no-deps", "--target", str(folder), requirement)
    return folder


def interpreter(work: Path) -> Path:
    """A venv of the packages that SGLang imports, which also sees torch and the rest of the project's own."""
    python = work / "venv/bin/python"
    if not python.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
        packages = next((work / "venv/lib").glob("python*/site-packages"))
        torch = importlib.util.find_spec("torch")
        assert torch is not None and torch.origin is not None, "make setup: the oracle needs torch"
        (packages / "project.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
        _pip(work, "install", *IMPORTED.split())
    return python


def _download(release: str, work: Path) -> Path:
    found = _downloaded(release, work)
    if found is None:
        interpreter(work)
        _pip(work, "download", "--no-deps", f"sglang=={release}", "-d", str(work / "wheels"))
        found = _downloaded(release, work)
    assert found is not None
    return found


def _downloaded(release: str, work: Path) -> Path | None:
    return next(iter((work / "wheels").glob(f"sglang-{release}-*.whl")), None)


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if not name.endswith(".so")])


def _pin(metadata: str, package: str) -> str:
    found = re.search(rf"^Requires-Dist: {package}(?:\[.*\])?==([\w.]+)", metadata, re.MULTILINE)
    return found[1] if found else ""


def _pip(work: Path, *arguments: str) -> None:
    done = subprocess.run([work / "venv/bin/python", "-m", "pip", "-qq", *arguments], check=False)
    if done.returncode:
        raise SystemExit(f"pip {' '.join(arguments)}: failed, see above")


@cache
def architectures_of(wheel: Wheel) -> frozenset[str]:
    """The classes of its model files: more than it serves, and all that it serves."""
    files = (wheel.folder / "sglang/srt/models").glob("*.py")
    return frozenset(name for file in files for name in re.findall(r"^class (\w+)", file.read_text(), re.M))
