"""A small bundle neither fills a disk nor the memory, whichever command reads it."""

import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sgl_tune.ship.archive import opened
from tests.sgl_tune.cache.caches import cache_folder
from tests.sgl_tune.running import PROGRAM, SECONDS, environment, run_here
from tests.sgl_tune.ship.bundles import code, squeezed, tactics

MIB = 1 << 20
MOST_MEMORY = 1024 * MIB  # that is mapped: threads and libraries take half of it


BOMBS: dict[str, tuple[Callable[[], Iterator[bytes]], str]] = {
    "equal tactics": (lambda: tactics([b" " * (16 * MIB)] * 5), "cache files"),
    "tactics that differ": (lambda: tactics([b" " * (16 * MIB - at) for at in range(5)]), "cache files"),
    "equal kernels": (lambda: code([bytes(64 * MIB)] * 5), "on a disk"),
    "files of a byte": (lambda: code([b"x"] * 70_000), "on a disk"),
    "folders of nothing": (lambda: code([b"x"], 70_000), "on a disk"),
}
COMMANDS = {
    "unpack": ("unpack", "BUNDLE", "--cache-dir", "root"),
    "a dry run": ("unpack", "BUNDLE", "--cache-dir", "root", "--dry-run"),
    "pull": ("pull", "file://STORE/bundle.tar.gz", "--cache-dir", "root", "--allow-unsigned-code"),
    "verify": ("verify", "BUNDLE"),
    "inspect": ("inspect", "BUNDLE"),
}


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    for name, (pieces, _) in BOMBS.items():
        (folder / name).mkdir()
        (folder / name / "bundle.tar.gz").write_bytes(squeezed(pieces()))
    return folder


@pytest.mark.parametrize(
    ("name", "command"),
    [*((name, "unpack") for name in BOMBS), *(("equal tactics", command) for command in COMMANDS)],
)
def test_a_bomb_is_refused_before_it_is_written(name: str, command: str, bombs: Path, tmp_path: Path) -> None:
    bundle = bombs / name / "bundle.tar.gz"
    assert bundle.stat().st_size < 2 * MIB
    if command == "pull":
        pytest.importorskip("fsspec")
    named = {"BUNDLE": str(bundle), "file://STORE/bundle.tar.gz": f"file://{bundle}"}
    words = [named.get(word, word) for word in COMMANDS[command]]
    code, said = _run(words, tmp_path)
    assert code == 1 and BOMBS[name][1] in said and "bug" not in said, said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def _run(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Its exit code and its errors, where it gets no more memory than that."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([*PROGRAM, *words], cwd=folder, env=environment(), **streams) as child:
        resource.prlimit(child.pid, resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        said = child.communicate(timeout=SECONDS)[1].decode()
    return child.returncode, said


def test_as_many_equal_files_as_a_large_deployment_has_are_no_bomb(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    bundle.write_bytes(squeezed(tactics([b"{}" + b" " * 60_000] * 1000)))
    with opened(bundle) as found:
        assert found.archive.manifest.bytes == 1000 * 60_002


def test_pack_writes_no_bundle_that_unpack_would_refuse(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path / "root")
    for rank in range(5):
        (folder / f"rank_tp{rank}_pp0_dp0.json").write_bytes(b'{"a": "' + b" " * (15 * MIB) + b'"}')
    ran = run_here("pack", tmp_path / "root", "-o", tmp_path / "b.tar.gz", "--force")
    assert ran.code == 2 and "cache files" in ran.err and not (tmp_path / "b.tar.gz").exists(), ran.err
