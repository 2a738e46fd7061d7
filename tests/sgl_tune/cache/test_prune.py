"""What prune chooses, what it leaves alone, and what it never touches."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import open_folder
from sgl_tune.cache.layouts.cache import JOURNAL, LOCK
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.prune import Rules, plan
from sgl_tune.cache.record import serialise
from sgl_tune.cache.remove import remove, settle
from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import make_journal
from tests.sgl_tune.cache.children import finish_child, start_holder
from tests.sgl_tune.cache.corpus import TARGET, moe_entries

DAY = 86400.0
OLD, NEW, OTHER = "aaaa000000000000", "bbbb000000000000", "cccc000000000000"


def _make_cache(
    root: Path, key: str, version: str = "0.7.2", arch: str = "sm90", days: float = 0.0, **kwargs: Any
) -> Path:
    folder = root / "flashinfer" / "autotune" / version / arch / key
    ranks = [folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(2)]
    write_group(ranks, moe_entries((1, 2)), TARGET, **kwargs)
    return _aged(folder, days)


def _aged(folder: Path, days: float) -> Path:
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then), follow_symlinks=False)
    return folder


def _interrupt(folder: Path, replace: dict[str, str], remove: list[str]) -> None:
    """As a writer leaves it that was killed before its first rename."""
    with open_folder(folder) as opened:
        (folder / JOURNAL).write_bytes(make_journal(opened, replace, remove).to_bytes())


def _choose(root: Path, **rules: Any) -> dict[str, str]:
    return {r.cache.path.name: r.reason for r in plan(find_caches(root), Rules(**rules), time.time())}


def _prune(root: Path, **rules: Any) -> list[str | None]:
    settle(find_caches(root), root)
    return [remove(r, root).skipped for r in plan(find_caches(root), Rules(**rules), time.time())]


def test_rules_narrow_each_other(tmp_path: Path) -> None:
    _make_cache(tmp_path, OLD, version="0.6.12", days=40)
    _make_cache(tmp_path, NEW, days=40)
    _make_cache(tmp_path, OTHER, arch="sm100", days=1)
    assert _choose(tmp_path, older_than=30 * DAY).keys() == {OLD, NEW}
    assert _choose(tmp_path, older_than=30 * DAY, flashinfer="0.7.2").keys() == {NEW}
    assert _choose(tmp_path, older_than=0.0, arch="sm100").keys() == {OTHER}
    assert _choose(tmp_path, older_than=30 * DAY, keep=("aaaa",)).keys() == {NEW}
    assert _choose(tmp_path, older_than=30 * DAY, arch="sm100") == {}
    assert _choose(tmp_path, older_than=30 * DAY)[OLD] == "last used 40 d ago"


def test_size_takes_the_least_recently_used_first(tmp_path: Path) -> None:
    sizes = [sum(p.stat().st_size for p in _make_cache(tmp_path, key, days=days).glob("rank*"))
             for key, days in ((OLD, 3), (NEW, 1), (OTHER, 2))]  # fmt: skip
    assert _choose(tmp_path, max_size=sum(sizes)) == {}
    assert list(_choose(tmp_path, max_size=sum(sizes) - 1)) == [OLD]
    assert list(_choose(tmp_path, max_size=sizes[0])) == [OLD, OTHER]
    assert list(_choose(tmp_path, max_size=0, keep=(NEW,))) == [OLD, OTHER]


def test_stale_is_what_a_newer_flashinfer_replaced(tmp_path: Path) -> None:
    _make_cache(tmp_path, OLD, version="0.6.9")
    _make_cache(tmp_path, NEW, version="0.6.18")
    _make_cache(tmp_path, OTHER, version="0.6.9", arch="sm100")
    assert _choose(tmp_path, stale=True) == {OLD: "FlashInfer 0.6.18 is here too"}
    assert _prune(tmp_path, stale=True) == [None]
    autotune = tmp_path / "flashinfer" / "autotune"
    folders = {path.name for path in autotune.rglob("*") if path.is_dir()}
    assert folders == {"0.6.9", "0.6.18", "sm90", "sm100", NEW, OTHER}
    assert not (autotune / "0.6.9" / "sm90").exists()


def test_stale_litter_goes_and_the_cache_stays(tmp_path: Path) -> None:
    folder = _make_cache(tmp_path, NEW)
    before = {path.name: path.read_bytes() for path in folder.glob("rank*")}
    (folder / "runs").mkdir()
    run = folder / "runs" / "rank_tp0_pp0_dp0.20260101_000000.0123.json"
    dead, alive = folder / ".autotuner_dead.tmp", folder / ".autotuner_alive.tmp"
    for path, age in ((run, 3600.0), (dead, 3600.0), (alive, 0.0)):
        path.write_bytes(b"{}")
        os.utime(path, (time.time() - age,) * 2)
    assert _choose(tmp_path, stale=True) == {NEW: "1 finished run, 1 file of dead writers"}
    assert _prune(tmp_path, stale=True) == [None]
    assert {path.name for path in folder.iterdir()} - {LOCK} == {*before, alive.name}
    assert {path.name: path.read_bytes() for path in folder.glob("rank*")} == before


def test_an_abandoned_folder_goes_and_one_just_made_stays(tmp_path: Path) -> None:
    base = tmp_path / "flashinfer" / "autotune" / "0.7.2" / "sm90"
    for key, age in ((OLD, 1.0), (NEW, 0.0)):
        (base / key).mkdir(parents=True)
        _aged(base / key, age)
    assert _choose(tmp_path, stale=True) == {OLD: "empty"}
    assert _prune(tmp_path, stale=True) == [None]
    assert [path.name for path in base.iterdir()] == [NEW]


def test_links_out_of_the_cache_are_not_followed(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "cache"
    folder = _make_cache(root, OLD, days=90)
    (folder.parent / OTHER).symlink_to(_make_cache(outside, OTHER, days=90))
    (outside / "file.json").write_text("precious")
    (folder / "runs").symlink_to(outside)
    link = folder / "rank_tp7_pp0_dp0.json"
    link.symlink_to(outside / "file.json")
    os.utime(link, (time.time() - 90 * DAY,) * 2, follow_symlinks=False)
    before = sorted(path.read_bytes() for path in outside.rglob("*") if path.is_file())
    assert _prune(root, older_than=30 * DAY) == [None]
    assert sorted(path.read_bytes() for path in outside.rglob("*") if path.is_file()) == before
    assert not link.is_symlink() and not list(folder.glob("rank*"))
    assert (folder / "runs").is_symlink(), "the link is not ours either"


def test_what_is_somebody_elses_stays(tmp_path: Path) -> None:
    folder = _make_cache(tmp_path, OLD, days=90)
    (folder / "notes.txt").write_text("tuned on node 7")
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "data.json").write_text("{}")
    assert _prune(tmp_path, older_than=DAY) == [None]
    assert {path.name for path in folder.iterdir()} - {LOCK} == {"notes.txt"}
    assert _choose(tmp_path / "loose", max_size=0) == {}
    whole = _make_cache(tmp_path, NEW, days=90)
    (whole / "rank_tp7_pp0_dp0.json/mine").mkdir(parents=True)
    (removal,) = plan(find_caches(tmp_path), Rules(key=NEW), time.time())
    assert len(removal.files) == 2 and removal.bytes == sum(path.stat().st_size for path in removal.files)
    assert "rank_tp7_pp0_dp0.json is a folder" in str(remove(removal, tmp_path).skipped)
    assert len(list(whole.glob("rank*"))) == 3 and not (whole / JOURNAL).exists()


def test_what_is_in_use_is_skipped(tmp_path: Path) -> None:
    folder = _make_cache(tmp_path, OLD, days=90)
    child, reader = start_holder(folder, tmp_path / "ready", lambda: time.sleep(30))
    (skipped,) = _prune(tmp_path, older_than=DAY)
    os.kill(child, 9)
    finish_child(child, reader)
    assert skipped and f"in use by process {child}" in skipped
    assert len(list(folder.glob("rank*"))) == 2

    removals = plan(find_caches(tmp_path), Rules(older_than=DAY), time.time())
    (folder / "rank_tp1_pp0_dp0.json").write_bytes(serialise(TARGET, {}))
    assert remove(removals[0], tmp_path).skipped == "written since"
    _aged(folder, 90)
    (folder / ".autotuner_now.tmp").write_bytes(b"{")
    os.utime(folder / ".autotuner_now.tmp")
    (removal,) = plan(find_caches(tmp_path), Rules(older_than=0.0, arch="sm90"), time.time())
    assert remove(removal, tmp_path).skipped == "a server may be writing to it"


def test_files_that_vanish_are_no_error(tmp_path: Path) -> None:
    gone, half = _make_cache(tmp_path, OLD, days=90), _make_cache(tmp_path, NEW, days=90)
    removals = plan(find_caches(tmp_path), Rules(older_than=DAY), time.time())
    shutil.rmtree(gone)
    (half / "rank_tp1_pp0_dp0.json").unlink()
    results = [remove(removal, tmp_path) for removal in removals]
    assert [(r.skipped, r.files) for r in results] == [("somebody else removed it", 0), (None, 1)]
    assert not half.exists()


def test_a_server_that_wrote_after_an_interrupted_change_wins(tmp_path: Path) -> None:
    folder = _make_cache(tmp_path, NEW)
    (folder / ".sgl-tune-1-00000000.tmp").write_bytes(b"ours")
    _interrupt(folder, {"rank_tp0_pp0_dp0.json": ".sgl-tune-1-00000000.tmp"}, ["rank_tp1_pp0_dp0.json"])
    for rank in range(2):
        (folder / f"rank_tp{rank}_pp0_dp0.json").write_bytes(b"the server's")
    settle(find_caches(tmp_path), tmp_path)
    assert [path.read_bytes() for path in sorted(folder.glob("rank*"))] == [b"the server's"] * 2
    left = {path.name for path in folder.iterdir()}
    assert left == {"rank_tp0_pp0_dp0.json", "rank_tp1_pp0_dp0.json", LOCK}
