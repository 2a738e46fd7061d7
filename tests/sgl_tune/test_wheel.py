"""What is built and installed, apart from this checkout and without torch: its commands run."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.sgl_tune.running import ROOT

PACKAGES = ("sgl_tune", "runtime")
CACHES = str(ROOT / "cache-examples")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools builds where the source is
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source), cwd=folder)
    return next(folder.glob("sgl_tune-*.whl"))


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("installed") / "venv"
    # With its own pip, and all of it compiled, this takes half a minute.
    _run(sys.executable, "-m", "venv", "--without-pip", str(place), cwd=place.parent)
    into = ("--python", str(place / "bin/python"), "install", "-q", "--no-compile")
    constraints = str(ROOT / "constraints.txt")
    _run(sys.executable, "-m", "pip", *into, "-c", constraints, str(wheel), cwd=place.parent)
    return place / "bin/sgl-tune"


def test_the_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"sgl_tune", "runtime", f"{wheel.name[:14]}.dist-info"}
    for package in PACKAGES:
        there = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*") if path.is_file()}
        kept = {name for name in there if "__pycache__" not in name}
        assert kept <= set(names)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--version",), 0, "sgl-tune "),
        (("--help",), 0, "mem-report"),
        (("inspect", "--cache-dir", CACHES), 0, "sm90"),
        (("warm", "--dry-run", "--model", "Qwen3-30B-A3B", "--gpu", "h200", "--tp", "2"), 0, "tunes"),
        (("warm", "--model", "demo-moe", "--tp", "2"), 2, "pip install 'sgl-tune[runtime]'"),
        (("mem-report", "--model", "Qwen3-30B-A3B", "--gpu", "h200"), 2, "sgl-tune[runtime]"),
    ],
)
def test_commands_run(program: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    home = {"HOME": str(tmp_path)}
    done = subprocess.run(
        [program, *words], cwd=tmp_path, env=home, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def _run(*words: str, cwd: Path) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
