"""`sgl-tune prune --store`: items by age, version and use, each gone whole or left whole."""

import fcntl
import os
from functools import partial
from pathlib import Path

import pytest

from sgl_tune.stores.prune import GOING
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores import make

OLD = 10**9


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make.whole_root(tmp_path / "root")


_prune = partial(told, "prune")


def _age(path: Path) -> Path:
    for one in (path, *path.rglob("*")):
        os.utime(one, (OLD, OLD))
    return path


def test_what_was_not_written_for_long_goes_and_the_rest_stays(root: Path) -> None:
    old = _age(make.triton_kernel(root / "triton", "old"))
    told = _prune(root, "--store", "triton", "--older-than", "30d", "-y")
    (gone,) = told["removed"]
    assert (gone["store"], Path(gone["path"])) == ("triton", old) and "written" in gone["reason"]
    assert not old.exists() and len(list((root / "triton").iterdir())) == 3


def test_a_dry_run_removes_nothing_and_says_the_same(root: Path) -> None:
    _age(make.triton_kernel(root / "triton", "old"))
    told = _prune(root, "--store", "all", "--older-than", "30d", "--dry-run")
    assert len(told["removed"]) == 1 and len(list((root / "triton").iterdir())) == 4


def test_older_versions_and_half_written_items_are_stale(root: Path) -> None:
    make.flashinfer_module(root / ".cache/flashinfer", "norm", "0.6.18")
    half = _age(make.triton_kernel(root / "triton", "half"))
    next(half.glob("__grp__*")).unlink()
    os.utime(half, (OLD, OLD))
    fresh = make.triton_kernel(root / "triton", "fresh")
    next(fresh.glob("__grp__*")).unlink()
    gone = {
        (row["store"], row["reason"][:20])
        for row in _prune(root, "--store", "all", "--stale", "-y")["removed"]
    }
    assert gone == {("flashinfer-jit", "flashinfer 0.7.2 is "), ("triton", "its group was never ")}
    assert fresh.exists() and not half.exists()


def test_the_least_recently_written_go_until_the_rest_fits(root: Path) -> None:
    old = _age(make.gemm(root / "deep_gemm", "old"))
    _prune(root, "--store", "deep-gemm", "--max-size", "200B", "-y")
    assert not old.exists() and len(list((root / "deep_gemm/cache").iterdir())) == 1


def test_the_drivers_own_goes_only_where_it_is_named(root: Path) -> None:
    _age(root / "nv")
    assert _prune(root, "--store", "all", "--older-than", "30d", "--dry-run")["removed"] == []
    assert len(_prune(root, "--store", "driver", "--older-than", "30d", "--dry-run")["removed"]) == 1


def test_what_a_killed_prune_left_is_swept_and_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    kept = make.write(tmp_path / "mine" / "kept.txt", "mine")
    old = make.triton_kernel(root / "triton", "old")
    (old / "away").symlink_to(kept.parent)
    make.write(root / "triton" / f"{GOING}1-ab" / "x.cubin", make.CUBIN)
    (root / "triton" / f"{GOING}1-ab" / "link").symlink_to(kept)
    _age(old)
    _prune(root, "--store", "triton", "--older-than", "30d", "-y")
    assert not list((root / "triton").glob(f"{GOING}*")) and not old.exists()
    assert kept.read_text() == "mine"


def test_the_folder_of_a_killed_unpack_is_swept_and_that_of_another_is_not(root: Path) -> None:
    dead, young, held, tight = (root / f".sgl-tune-{letter * 16}" for letter in "abcd")
    for folder in (dead, young, held, tight):
        make.write(folder / "triton" / "x.cubin", make.CUBIN)
    for folder in (dead, held):
        os.utime(folder, (OLD, OLD))
    holder = os.open(held, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        for words in (["--store", "all", "--stale"], ["--stale"]):
            assert run_here("prune", root, *words, "-y").code == 0
            assert not dead.exists() and young.exists() and held.exists()
    finally:
        os.close(holder)


def test_sweeping_follows_no_link(root: Path, tmp_path: Path) -> None:
    kept = make.write(tmp_path / "mine" / f"{GOING}1-ab" / "kept.txt", "mine")
    (root / "link").symlink_to(tmp_path / "mine")
    (root / f"{GOING}2-cd").symlink_to(kept.parent)
    (root / f"{GOING}3-ef").mkdir()
    (root / f"{GOING}3-ef" / "link").symlink_to(kept.parent)
    assert run_here("prune", root, "--store", "all", "--stale", "-y").code == 0
    assert kept.read_text() == "mine" and not (root / f"{GOING}3-ef").exists()


def test_wrong_usage_exits_with_2_and_a_fix(root: Path) -> None:
    library = ["--store", "triton", "--library", "x"]
    for words in (["--store", "triton"], ["--store", "x", "--stale"], library):
        assert run_here("prune", root, *words).ends(2, "fix:")
