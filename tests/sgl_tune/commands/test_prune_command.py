"""`sgl-tune prune` from outside: it says first, asks, and then does exactly that."""

import json
import os
import time
from pathlib import Path

import pytest

from sgl_tune.cache.store import write_group
from tests.sgl_tune.cache.corpus import TARGET, moe_entries
from tests.sgl_tune.running import run, run_on_terminal

OLD, NEW = "aaaa000000000000", "bbbb000000000000"


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    for key, days in ((OLD, 40), (NEW, 1)):
        folder = tmp_path / "flashinfer" / "autotune" / "0.7.2" / "sm90" / key
        write_group([folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(2)], moe_entries(), TARGET)
        then = time.time() - days * 86400
        for path in folder.iterdir():
            os.utime(path, (then, then))
    return tmp_path


def _keys(root: Path) -> set[str]:
    return {path.parent.name for path in root.rglob("rank_*.json")}


def test_without_a_rule_nothing_happens(cache_dir: Path) -> None:
    assert run("prune", "--cache-dir", cache_dir, "-y").ends(2, "prune needs a rule")
    for narrowing in (("--keep", OLD), ("--library", "arch=sm90"), ("--library", "flashinfer=0.7.2")):
        assert run("prune", "--cache-dir", cache_dir, *narrowing, "-y").code == 2
    assert _keys(cache_dir) == {OLD, NEW}


def test_one_cache_goes_by_its_key(cache_dir: Path) -> None:
    ran = run("prune", NEW[:6], "--cache-dir", cache_dir, "--dry-run")
    assert "Would remove 2 files" in ran.out and "its key was named" in ran.out
    assert run("prune", NEW[:6], "--cache-dir", cache_dir, "--older-than", "30d", "-y").code == 0
    assert _keys(cache_dir) == {OLD, NEW}, "another rule narrows it"
    assert run("prune", NEW[:6], "--cache-dir", cache_dir, "-y").code == 0
    assert _keys(cache_dir) == {OLD}
    ran = run("prune", NEW, "--cache-dir", cache_dir, "-y")
    assert ran.code == 2 and f"no key in {cache_dir} begins so" in ran.err and _keys(cache_dir) == {OLD}


def test_a_dry_run_only_looks(cache_dir: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in cache_dir.rglob("*")}
    ran = run("prune", "--cache-dir", cache_dir, "--older-than", "30d", "--dry-run")
    assert ran.code == 0 and "Would remove 2 files" in ran.out and "last used 40 d ago" in ran.out
    assert {path: path.stat().st_mtime_ns for path in cache_dir.rglob("*")} == before
    data = json.loads(
        run("prune", "--cache-dir", cache_dir, "--max-size", "0", "--dry-run", "--format", "json").out
    )
    assert data["schema_version"] == 1 and data["dry_run"] is True
    assert [removed["key"] for removed in data["removed"]] == [OLD, NEW]


def test_yes_removes_and_says_what(cache_dir: Path) -> None:
    ran = run("prune", "--cache-dir", cache_dir, "--older-than", "30d", "-y", "--format", "quiet")
    assert (ran.code, ran.err) == (0, "") and Path(ran.out.strip()).name == OLD
    assert not Path(ran.out.strip()).exists() and _keys(cache_dir) == {NEW}
    ran = run("prune", "--cache-dir", cache_dir, "--older-than", "30d", "-y")
    assert (ran.code, ran.out) == (0, "Nothing to remove.\n")


def test_it_asks_where_somebody_can_answer(cache_dir: Path) -> None:
    arguments = ("prune", "--cache-dir", cache_dir, "--older-than", "30d")
    assert run(*arguments).ends(2, "add -y") and _keys(cache_dir) == {OLD, NEW}
    for answer in ("n\n", "\n", "what\n"):
        ran = run_on_terminal(*arguments, answer=answer)
        assert ran.code == 0 and "Nothing was removed." in ran.out and _keys(cache_dir) == {OLD, NEW}
    ran = run_on_terminal(*arguments, answer="y\n", NO_COLOR="1")
    assert ran.code == 0 and "Removed 2 files" in ran.out and _keys(cache_dir) == {NEW}
    assert max(len(line) for line in ran.out.splitlines()) <= 80


@pytest.mark.skipif(os.getuid() != 0, reason="needs a file system where even root may not write")
def test_what_cannot_be_removed_is_said_and_is_exit_3(cache_dir: Path) -> None:
    folder = next(path for path in cache_dir.rglob(OLD))
    if os.system(f"chattr +i {folder} 2>/dev/null"):
        pytest.skip("no immutable folders here")
    try:
        ran = run("prune", "--cache-dir", cache_dir, "--older-than", "30d", "-y")
    finally:
        os.system(f"chattr -i {folder}")
    assert ran.code == 3 and "left alone" in ran.err and "1 cache could not be removed" in ran.err
    assert ran.out == "Nothing was removed.\n"
    assert _keys(cache_dir) == {OLD, NEW}
