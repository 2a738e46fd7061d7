"""A second party at work in the root while a bundle is unpacked: it sees nothing that has not landed, and
what it takes away is missed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.errors import WorkFailed
from sgl_tune.ship import landing
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.unpack import How, unpack
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.stores import make


def _unpack(bundle: Path, root: Path, between: Callable[[Path], None]) -> set[str]:
    """The files that landed. `between` is what somebody does after the check and before the landing."""

    def judge(folder: Path, manifest: BundleManifest) -> None:
        between(folder)

    unpack(bundle, How(root, str(root)), lambda size: None, lambda text: None, judge)
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "prune ROOT --max-size 0B -y",
        "prune ROOT --older-than 0s -y",
        "prune ROOT --store all --older-than 0s -y",
        "prune ROOT --store all --max-size 0B -y",
        "relocate ROOT --at /elsewhere",
    ],
)
def test_no_command_changes_what_is_only_staged(words: str, whole: Path, tmp_path: Path) -> None:
    said = []
    root = tmp_path / "root"

    def between(folder: Path) -> None:
        before = _contents(folder)
        said.append(run(*words.replace("ROOT", str(root)).split()))
        assert _contents(folder) == before

    assert _unpack(whole, root, between) == _unpack(whole, tmp_path / "alone", lambda folder: None)
    assert said[0].code == 0, said[0].err


@pytest.mark.parametrize("words", ["inspect ROOT --store all", "inspect ROOT", "verify ROOT"])
def test_no_command_reads_what_is_only_staged(words: str, whole: Path, tmp_path: Path) -> None:
    said = []
    root = tmp_path / "root"
    _unpack(whole, root, lambda folder: said.append(run(*words.replace("ROOT", str(root)).split())))
    assert ".sgl-tune-" not in said[0].out and "kernel" not in said[0].out, said[0].out


def test_what_is_only_staged_is_not_packed(whole: Path, tmp_path: Path) -> None:
    said = []
    root = tmp_path / "root"
    make.triton_kernel(root / "triton", "mine")
    mine = tmp_path / "mine.tar.gz"
    words = ("pack", root, "--store", "all", "-o", mine, "--format", "json")
    _unpack(whole, root, lambda folder: said.append(run(*words)))
    assert said[0].code == 0, said[0].err
    packed = json.loads(said[0].out)
    assert [(row["store"], row["items"]) for row in packed["stores"]] == [("triton", 1)]
    assert packed["caches"] == []


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _gone(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)


def _one_store_gone(folder: Path) -> None:
    shutil.rmtree(folder / "triton")


def _one_file_other(folder: Path) -> None:
    (found,) = folder.rglob("kernel_0.cubin")
    found.write_bytes(make.CUBIN + b"other")


def _one_file_a_link(folder: Path) -> None:
    (found,) = folder.rglob("kernel_0.cubin")
    found.unlink()
    found.symlink_to("/etc/hostname")


def _one_rank_gone(folder: Path) -> None:
    next(folder.rglob("rank_*.json")).unlink()


@pytest.mark.parametrize(
    "between", [_gone, _one_store_gone, _one_file_other, _one_file_a_link, _one_rank_gone]
)
def test_what_did_not_land_as_it_was_checked_is_missed(
    between: Callable[[Path], None], whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorkFailed, match=r"of the bundle's \d+ files did not land as they were checked"):
        _unpack(whole, tmp_path / "root", between)


def test_what_is_taken_from_the_root_at_the_landing_is_missed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process, without our locks, removes a store between the landing and the last check."""
    root = tmp_path / "root"
    looks = landing.check_landed

    def check_landed(*arguments: Any) -> None:
        subprocess.run(["rm", "-r", root / "triton"], check=True)
        looks(*arguments)

    monkeypatch.setattr("sgl_tune.ship.unpack.check_landed", check_landed)
    ran = run_here("unpack", whole, "--cache-dir", root)
    assert ran.code == 3 and "did not land as they were checked" in ran.err, ran.out + ran.err
