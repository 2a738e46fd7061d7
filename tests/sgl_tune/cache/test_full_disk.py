"""A disk filled to the last byte, or to the last file: to make room on it needs none."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.folder import open_folder
from sgl_tune.cache.layouts.cache import JOURNAL, LOCK
from sgl_tune.cache.transaction import make_journal
from tests.disks import mounted
from tests.sgl_tune.cache.caches import cache_folder, good, write_ranks
from tests.sgl_tune.running import run

KEPT, OLD = "aaaa000000000000", "bbbb000000000000"
NAMES = [f"rank_tp{rank}_pp0_dp0.json" for rank in range(4)]


@pytest.fixture(params=["size=256k", "size=8m,nr_inodes=60"], ids=["bytes", "files"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted(tmp_path / "disk", request.param) as folder:
        yield folder


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(b"x" * 512):
            if os.fstat(ballast.fileno()).st_size > 2 << 20:
                break
    for number in range(100):
        try:
            (disk / f"ballast{number}").write_bytes(b"x" * 8)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return
    raise AssertionError("the disk does not fill")


def _caches(disk: Path) -> tuple[Path, Path]:
    folders = cache_folder(disk, key=KEPT), cache_folder(disk, key=OLD)
    for folder in folders:
        write_ranks(folder, NAMES)
    return folders


def test_a_full_disk_can_be_pruned(disk: Path) -> None:
    kept, old = _caches(disk)
    _fill(disk)
    ran = run("prune", disk, "--max-size", "0", "--keep", KEPT, "-y")
    assert (ran.code, ran.err) == (0, "") and "Removed 4 files" in ran.out
    assert not old.exists() and {path.name for path in kept.iterdir()} == set(NAMES)
    again: Any = run("prune", disk, "--max-size", "0", "-y")
    assert again.code == 0 and not kept.exists()


def test_an_unfinished_change_on_a_full_disk_is_finished(disk: Path) -> None:
    kept, old = _caches(disk)
    temporary = ".sgl-tune-1-00000000.tmp"
    (old / temporary).write_bytes(good(other=["MoERunner", 1, "hot"]))
    with open_folder(old) as folder:
        (old / JOURNAL).write_bytes(make_journal(folder, {NAMES[0]: temporary}, NAMES[1:]).to_bytes())
    _fill(disk)
    ran = run("prune", disk, "--older-than", "30d", "-y")
    assert ran.code == 0 and "finished an interrupted change of 4 files" in ran.err
    assert {path.name for path in old.iterdir()} - {LOCK} == {NAMES[0]} and len(list(kept.iterdir())) == 4
