"""What ninja itself would do with a module's folder, beside what is said of it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgl_tune.cache.folder import open_folder
from sgl_tune.stores.built import Freshness, arch_of

NINJA = shutil.which("ninja", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
OLD, NEW = 10**9, 2 * 10**9
# As FlashInfer's: absolute paths, one rule that leaves its dependencies behind, and one that links.
BUILD = """ninja_required_version = 1.3
rule cuda_compile
  command = cp $in $out && printf '%s: %s {header}\\n' $out $in > $out.d
  depfile = $out.d
  deps = gcc
rule link
  command = cat $in > $out

build {folder}/norm.cuda.o: cuda_compile {source}
build {folder}/other.cuda.o: cuda_compile {source}

build {folder}/norm.so: link {folder}/norm.cuda.o {folder}/other.cuda.o
default {folder}/norm.so
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "cached_ops" / "norm"
    folder.mkdir(parents=True)
    source, header = tmp_path / "norm.cu", tmp_path / "norm.cuh"
    for path in (source, header):
        path.write_text("x")
        os.utime(path, (OLD, OLD))
    (folder / "build.ninja").write_text(BUILD.format(folder=folder, source=source, header=header))
    assert "ninja: no work to do" not in _ninja(folder) and "no work to do" in _ninja(folder)
    return folder


def _ninja(folder: Path, *words: str) -> str:
    """As FlashInfer calls it."""
    command = [NINJA or "ninja", "-v", "-C", folder, "-f", folder / "build.ninja", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def _moved(folder: Path) -> Path:
    """With ninja's own file as FlashInfer writes it anew: for the new place."""
    place = folder.parent.with_name("moved") / folder.name
    shutil.copytree(folder, place)
    return place


def _touch(name: str, time: float) -> Callable[[Path], object]:
    return lambda folder: os.utime(folder / name, (time, time))


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda folder: None,
    "the library is older than its objects": _touch("norm.so", OLD),
    "an object was touched": _touch("norm.cuda.o", NEW),
    "a source is newer": _touch("../../norm.cu", NEW),
    "a header is newer": _touch("../../norm.cuh", NEW),
    "a header is gone": lambda folder: (folder / "../../norm.cuh").unlink(),
    "the log is gone": lambda folder: (folder / ".ninja_log").unlink(),
    "the log is cut off": lambda folder: (folder / ".ninja_log").write_text("# ninja log v6\n1\t2"),
    "dependencies are gone": lambda folder: (folder / ".ninja_deps").unlink(),
    "dependencies are no log": lambda folder: (folder / ".ninja_deps").write_bytes(b"# ninjadeps\n\xff"),
    "an object is gone": lambda folder: (folder / "other.cuda.o").unlink(),
    "the library is gone": lambda folder: (folder / "norm.so").unlink(),
    "all times are lost": lambda folder: [os.utime(path, (NEW, NEW)) for path in folder.iterdir()],
    "all times are lost in the past": lambda folder: [os.utime(path, (9, 9)) for path in folder.iterdir()],
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_fresh_where_ninja_has_nothing_to_do(change: str, module: Path) -> None:
    CHANGES[change](module)
    with open_folder(module, module) as folder:
        said = Freshness().objection(folder, str(module), is_here=True)
    idle = "no work to do" in _ninja(module, "-n")
    assert (said is None) == idle, said


def test_a_moved_one_is_built_again(module: Path) -> None:
    place = _moved(module)
    with open_folder(place, place) as folder:
        said = Freshness().objection(folder, str(place), is_here=True)
    assert said is not None and said.kind == "moved"
    text = (place / "build.ninja").read_text().replace(str(module), str(place))
    (place / "build.ninja").write_text(text)
    assert "no work to do" not in _ninja(place, "-n")
    with open_folder(place, place) as folder:
        again = Freshness().objection(folder, str(place), is_here=True)
    assert again is not None and again.kind == "stale"


def test_no_header_is_read_of_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with os.fdopen(os.open(tmp_path / "pipe", os.O_RDWR), "wb"), open_folder(tmp_path) as folder:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert arch_of(folder, "pipe") is None and arch_of(folder, ".") is None
        assert len(list(Path("/proc/self/fd").iterdir())) == before
