"""Somebody else writes in the same cache: what he plants or swaps meanwhile leads nowhere."""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.cache import JOURNAL, LOCK
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.lock import NO_LOCKS
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.prune import Rules, plan
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.remove import remove, settle
from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.errors import WorkFailed
from tests.sgl_tune.cache.caches import cache_folder, good, write_ranks
from tests.sgl_tune.cache.children import finish_child, hearing, in_child, start_holder
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_entries, moe_key
from tests.sgl_tune.cache.outside import SECRET, Outside
from tests.sgl_tune.cache.without_flock import IS_POSSIBLE, refuse_flock
from tests.sgl_tune.running import run, run_on_terminal

KEY, OTHER = "aaaa000000000000", "bbbb000000000000"
NAMES = [f"rank_tp{rank}_pp0_dp0.json" for rank in range(3)]


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _cache(root: Path, key: str = KEY, days: float = 40) -> Path:
    folder = cache_folder(root, key=key)
    for path in write_ranks(folder, NAMES):
        os.utime(path, (time.time() - days * 86400,) * 2)
    return folder


def _entry(bucket: int) -> dict[str, Any]:
    return {moe_key(bucket): ["MoERunner", 7, HOT]}


def _swap(path: Path, target: Path) -> None:
    path.rename(path.with_name("moved-away"))
    path.symlink_to(target)


# Links


@pytest.mark.parametrize("above", [0, 1, 3], ids=["the folder", "the one above", "the layout's first"])
def test_prune_does_not_follow_a_swapped_folder(root: Path, outside: Outside, above: int) -> None:
    folder = _cache(root)
    swapped = [folder, *folder.parents][above]
    target = outside.folder.joinpath(*folder.relative_to(swapped).parts)
    target.mkdir(parents=True, exist_ok=True)
    write_ranks(target, NAMES)
    bait = Outside(outside.folder / "bait")
    before = {path: path.read_bytes() for path in target.glob("rank*")}
    prune = ("prune", root, "--older-than", "30d")
    swap = partial(_swap, swapped, outside.folder)
    ran = run_on_terminal(*prune, answer="y\n", before_answer=swap, NO_COLOR="1")
    assert "leads out of the cache" in " ".join(ran.out.split()) and ran.code == 0
    assert {path: path.read_bytes() for path in target.glob("rank*")} == before
    assert bait.is_untouched() and len(list(root.rglob("rank*"))) == len(NAMES)


@pytest.mark.parametrize("name", [NAMES[1], "sgl-tune.json"])
def test_a_link_to_a_private_file_is_not_read_by_a_write(root: Path, outside: Outside, name: str) -> None:
    folder = cache_folder(root, key=KEY)
    (folder / name).symlink_to(outside.private)
    write_group([folder / name for name in NAMES], _entry(1), TARGET, manifest=Manifest(TARGET))
    assert outside.is_untouched()
    assert not any(SECRET in path.read_text() for path in folder.iterdir())
    assert not (folder / name).is_symlink() and len({(folder / name).read_bytes() for name in NAMES}) == 1


@pytest.mark.parametrize("name", [NAMES[0], "sgl-tune.json"])
@pytest.mark.parametrize(
    "command", [("inspect", "--entries"), ("inspect",), ("verify",), ("diff",), ("prune", "--stale", "-y")]
)
def test_a_file_that_links_to_a_private_one_is_not_read_by_a_command(
    root: Path, outside: Outside, command: tuple[str, ...], name: str
) -> None:
    folder = _cache(root)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside.private)
    places = (root, root) if command[0] == "diff" else (root,)
    for format in ("human", "json"):
        ran = run(*command, *places, "--format", format)
        assert ran.code in (0, 1) and "bug" not in ran.err and SECRET not in ran.out + ran.err
    assert outside.is_untouched()


def test_a_managed_store_that_links_out_is_not_read(root: Path, outside: Outside) -> None:
    store = root / "autotune" / "v2" / KEY
    (store / "entries").mkdir(parents=True)
    (store / "manifest.json").symlink_to(outside.private)
    (store / "entries" / "0123.json").symlink_to(outside.private)
    for command in ("inspect", "verify"):
        ran = run(command, root, "--format", "json")
        assert ran.code in (0, 1) and SECRET not in ran.out + ran.err
    assert outside.is_untouched()


def test_a_link_on_the_way_is_refused_by_a_write(root: Path, outside: Outside) -> None:
    (root / "flashinfer" / "autotune").mkdir(parents=True)
    (root / "flashinfer" / "autotune" / "0.7.2").symlink_to(outside.folder)
    place = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / KEY
    with pytest.raises(WorkFailed, match=r"0\.7\.2: is a link, and none is followed inside a cache folder"):
        write_group([place / name for name in NAMES], _entry(1), TARGET)
    assert outside.is_untouched()


def test_a_write_that_waited_does_not_follow_a_swapped_folder(root: Path, outside: Outside) -> None:
    folder = cache_folder(root, key=KEY)

    def swap() -> None:
        time.sleep(0.5)
        _swap(folder, outside.folder)

    other = start_holder(folder, root / "ready", swap)
    with pytest.raises(WorkFailed, match="is a link, and none is followed"):
        write_group([folder / name for name in NAMES], _entry(1), TARGET)
    finish_child(*other)
    assert outside.is_untouched()


def test_a_write_stays_in_a_folder_that_is_swapped_for_a_link(root: Path, outside: Outside) -> None:
    """Another thread swaps the folder at the first rename. The files stay in the folder that was opened."""
    folder = cache_folder(root, key=KEY)

    def act(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and not folder.is_symlink() and "moved-away" not in str(arguments[1]):
            _swap(folder, outside.folder)

    in_child(hearing(act, lambda: write_group([folder / name for name in NAMES], _entry(1), TARGET)))
    assert outside.is_untouched()
    assert {path.name for path in folder.with_name("moved-away").glob("rank*")} == set(NAMES)


def test_a_cache_folder_may_itself_be_a_link(tmp_path: Path, root: Path) -> None:
    (tmp_path / "disk").mkdir()
    root.symlink_to(tmp_path / "disk")
    folder = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / KEY
    write_group([folder / name for name in NAMES], _entry(1), TARGET)
    assert run("prune", root, "--max-size", "0", "-y").code == 0 and not list((tmp_path / "disk").iterdir())


# Locks


@pytest.mark.parametrize("target", ["private", "not-there"], ids=["link", "dangling link"])
def test_a_lock_that_is_a_link_is_refused(root: Path, outside: Outside, target: str) -> None:
    folder = _cache(root)
    (folder / LOCK).symlink_to(outside.folder / target)
    with pytest.raises(WorkFailed, match=r"\.sgl-tune\.lock: is no regular file, so it cannot be the lock"):
        write_group([folder / name for name in NAMES], _entry(1), TARGET)
    other = _cache(root, OTHER)
    ran = run("prune", root, "--older-than", "30d", "-y")
    assert ran.code == 3 and "cannot be the lock" in ran.err and not other.exists()
    assert outside.is_untouched() and len(list(folder.glob("rank*"))) == len(NAMES)


def test_a_lock_that_is_a_private_file_too_is_neither_written_nor_shown(root: Path, outside: Outside) -> None:
    folder = _cache(root)
    (folder / LOCK).hardlink_to(outside.private)
    said: list[str] = []

    def write() -> list[str]:
        with pytest.raises(WorkFailed, match="in use by another process"):
            write_group([folder / name for name in NAMES], _entry(1), TARGET, timeout=2.5, say=said.append)
        return said

    with locked(folder):
        assert in_child(write) == [f"waiting for another process, which is writing to {folder}"]
    write_group([folder / name for name in NAMES], _entry(1), TARGET)
    assert outside.is_untouched()


# Journals


TEMPORARY = ".sgl-tune-1-00000000.tmp"
_NONSENSE: dict[str, dict[str, Any] | str] = {
    "a NUL": {"remove": ["a\0b"]},
    "too long": {"remove": ["x" * 300]},
    "no text": {"remove": ["\udcff"]},
    "a number": {"remove": [7]},
    "a list": {"remove": [[]]},
    "a folder": {"remove": ["runs"]},
    "over a folder": {"replace": {"runs": TEMPORARY}},
    "the lock": {"remove": [LOCK]},
    "itself": {"replace": {JOURNAL: TEMPORARY}},
    "outside": {"remove": ["../../../../../../outside/private"]},
    "from outside": {"replace": {NAMES[0]: "../../../../../../outside/private"}},
    "no temporary": {"replace": {NAMES[0]: NAMES[1]}},
    "seen is no map": {"seen": 7},
    "an endless number": '{"replace": {}, "remove": [], "seen": ' + "9" * 5000 + "}",
    "too deep": "[" * 100_000,
    "a pipe": "",
    "a link": "",
    "a dangling link": "",
}


def _plant(journal: Path, case: str, outside: Outside) -> None:
    nonsense = _NONSENSE[case]
    if case == "a pipe":
        os.mkfifo(journal)
    elif case.endswith("link"):
        journal.symlink_to(outside.private if case == "a link" else outside.folder / "not-there")
    elif isinstance(nonsense, str):
        journal.write_text(nonsense)
    else:
        names = [*nonsense.get("replace", {}), *nonsense.get("remove", [])]
        seen = {str(name): [None, None] for name in names}
        journal.write_text(json.dumps({"replace": {}, "remove": [], "seen": seen, **nonsense}))


@pytest.mark.parametrize("case", sorted(_NONSENSE))
def test_a_journal_of_nonsense_is_none(root: Path, outside: Outside, case: str) -> None:
    folder, other = _cache(root, days=0), _cache(root, OTHER)
    (folder / "runs").mkdir()
    (folder / TEMPORARY).write_bytes(b"planted")
    _plant(folder / JOURNAL, case, outside)
    before = {name: (folder / name).read_bytes() for name in NAMES}
    assert run("prune", root, "--older-than", "30d", "-y").ends(0, "no longer applies") and not other.exists()
    assert {name: (folder / name).read_bytes() for name in NAMES} == before and outside.is_untouched()
    assert {path.name for path in folder.iterdir()} == {*NAMES, "runs", LOCK}
    write_group([folder / name for name in NAMES], _entry(1), TARGET)


# Clocks


def _dies_after_the_first_rename(work: Callable[[], object]) -> Callable[[], None]:
    renames: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            renames.append(arguments[1])
            if len([name for name in renames if name != JOURNAL]) == 2:
                os._exit(9)

    return hearing(hook, work)


@pytest.mark.parametrize("hours", [-3, 0, 3], ids=["back", "steady", "forward"])
def test_a_clock_that_jumps_changes_nothing_for_a_change_to_be_finished(root: Path, hours: float) -> None:
    folder = _cache(root)
    paths = [folder / name for name in NAMES]
    in_child(_dies_after_the_first_rename(lambda: write_group(paths, _entry(77), TARGET)))
    assert len({path.read_bytes() for path in paths}) == 2, "it died too early or too late"
    os.utime(folder / JOURNAL, (time.time() + hours * 3600,) * 2)
    assert "finished an interrupted change" in settle(find_caches(root), root)[0]
    assert len({path.read_bytes() for path in paths}) == 1
    assert moe_key(77) in read_cache_file(paths[0]).entries


def test_a_server_that_writes_with_an_earlier_clock_is_noticed_by_a_prune(root: Path) -> None:
    folder = _cache(root)
    (removal,) = plan(find_caches(root), Rules(older_than=86400.0), time.time())
    (folder / "new").write_bytes(good(other=["MoERunner", 1, HOT]))
    os.utime(folder / "new", (1_000_000_000,) * 2)
    (folder / "new").replace(folder / NAMES[1])
    assert remove(removal, root).skipped == "written since"
    assert len(list(folder.glob("rank*"))) == len(NAMES)


# A file system without locks


@pytest.mark.skipif(not IS_POSSIBLE, reason="no seccomp filter is known for this machine")
def test_without_locks_a_write_goes_on_and_says_what_that_costs(root: Path) -> None:
    paths = [root / name for name in NAMES]

    def write() -> tuple[str, ...]:
        refuse_flock()
        return write_group(paths, moe_entries(), TARGET).notes

    assert in_child(write) == (NO_LOCKS,)
    assert len({path.read_bytes() for path in paths}) == 1
