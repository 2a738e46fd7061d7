"""A second party at work in the root while a bundle is unpacked: it sees nothing that has not landed, and
what it takes away is missed."""

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
from tests.sgl_tune.cache.caches import files_of
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
        before = files_of(folder)
        said.append(run(*words.replace("ROOT", str(root)).split()))
        assert files_of(folder) == before

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


def _take(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("pattern", "happens"),
    [
        ("*", _take),
        ("triton", _take),
        ("flashinfer/autotune/0.7.2/sm90/ad601cc9b3a885f2/rank_tp0_pp0_dp0.json", _take),
        ("**/kernel_0.cubin", lambda path: path.write_bytes(make.CUBIN + b"other")),
        ("**/kernel_0.cubin", _link),
    ],
)
def test_what_did_not_land_as_it_was_checked_is_missed(
    pattern: str, happens: Callable[[Path], object], whole: Path, tmp_path: Path
) -> None:
    def between(folder: Path) -> None:
        assert [happens(path) for path in list(folder.glob(pattern))]

    with pytest.raises(WorkFailed, match=r"of the bundle's \d+ files did not land as they were checked"):
        _unpack(whole, tmp_path / "root", between)


def test_what_the_root_loses_is_missed(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, without our locks, removes a store between the landing and the last check."""
    root = tmp_path / "root"
    looks = landing.check_landed

    def check_landed(*arguments: Any) -> None:
        subprocess.run(["rm", "-r", root / "triton"], check=True)
        looks(*arguments)

    monkeypatch.setattr("sgl_tune.ship.unpack.check_landed", check_landed)
    ran = run_here("unpack", whole, "--cache-dir", root)
    assert ran.code == 3 and "did not land as they were checked" in ran.err, ran.out + ran.err
