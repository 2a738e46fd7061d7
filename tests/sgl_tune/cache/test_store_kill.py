"""kill -9 while writing, merging and pruning: every file is old or new, and the next run cleans up.

`SGL_TUNE_KILLS=2000 pytest tests/sgl_tune/cache/test_store_kill.py` looks for longer.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.cache import LOCK
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.manifest import Manifest, read_manifest
from sgl_tune.cache.prune import Rules, plan
from sgl_tune.cache.record import read_cache_file, serialise
from sgl_tune.cache.remove import remove, settle
from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import locked
from tests.sgl_tune.cache.children import finish_child, hearing, in_child, kill_after, start_child
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_key


def _prune_all_but_kept(root: Path) -> None:
    settle(find_caches(root), root)
    for removal in plan(find_caches(root), Rules(max_size=0, keep=(KEPT,)), time.time()):
        remove(removal, root)


def _check_group(paths: list[Path], before: int) -> int:
    """After a kill: each file old or new. After the next lock: all the same, and nothing lies about."""
    counts = {_count(path) for path in paths if path.exists()}
    assert len(counts) <= 2 and (not counts or max(counts) - min(counts) <= 1), counts
    with locked(paths[0].parent):
        pass
    after = {_count(path) for path in paths if path.exists()}
    assert len(after) <= 1 and len([p for p in paths if p.exists()]) in (0, RANKS)
    settled = after.pop() if after else 0
    assert settled >= max(counts, default=0) >= before
    assert _leftovers(paths[0].parent) == set()
    if settled:
        manifest = read_manifest(paths[0].parent / "sgl-tune.json")
        assert set(manifest.files.values()) == {read_cache_file(paths[0]).digest}
    return settled


ASKED = "SGL_TUNE_KILLS" in os.environ
KILLS = int(os.environ.get("SGL_TUNE_KILLS", "100"))
PATIENCE = 3.0
RANKS = 4
KEY, KEPT = "aaaa000000000000", "bbbb000000000000"


def _make_group(root: Path, key: str = KEY) -> list[Path]:
    folder = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / key
    return [folder / f"rank_tp{rank}_pp0_dp{rank}.json" for rank in range(RANKS)]


def _entries(count: int) -> dict[str, Any]:
    return {moe_key(bucket): ["MoERunner", bucket, HOT] for bucket in range(count)}


def _count(path: Path) -> int:
    """How many rounds this file has seen; it must be exactly what one of them wrote."""
    count = len(read_cache_file(path).entries)
    assert path.read_bytes() == serialise(TARGET, _entries(count)), path
    return count


def _instants(seed: int, work: Callable[[], object]) -> Iterator[float]:
    """Random moments to kill at, up to three times what the work takes here and now. A busy machine gets
    fewer of them, unless somebody asked for a number."""
    start = time.perf_counter()
    in_child(work)
    longest = 3 * (time.perf_counter() - start)
    chance = random.Random(seed)
    for kill in range(KILLS):
        if not ASKED and kill >= 25 and time.perf_counter() - start > PATIENCE:
            return
        yield chance.uniform(0, longest)


def _leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".")} - {LOCK}


def _write_on(paths: list[Path], rounds: int = 10_000) -> None:
    """Round by round an entry more: `_entries(n)` follows `_entries(n - 1)`."""
    start = _count(paths[0]) if paths[0].exists() else 0
    for round_ in range(start, start + rounds):
        bucket = {moe_key(round_): ["MoERunner", round_, HOT]}
        write_group(paths, bucket, TARGET, manifest=Manifest(TARGET))


def test_killed_writers_do_not_lose_what_others_merge(tmp_path: Path) -> None:
    """Two processes merge into the same files, and one is killed again and again."""
    paths = _make_group(tmp_path)
    instants = _instants(1, lambda: write_group(paths, {moe_key(99_999_999): ["MoERunner", 1, HOT]}, TARGET))
    survived: set[str] = set()

    def merge(first: int) -> None:
        for bucket in range(first, first + 10_000):
            write_group(paths, {moe_key(bucket): ["MoERunner", 1, HOT]}, TARGET)

    for round_, instant in enumerate(instants):
        other = start_child(lambda round_=round_: write_group(
            paths, {moe_key(10_000_000 + round_): ["MoERunner", 1, HOT]}, TARGET
        ))  # fmt: skip
        kill_after(instant, lambda round_=round_: merge(round_ * 10_000))
        finish_child(*other)
        with locked(paths[0].parent):
            pass
        assert len({path.read_bytes() for path in paths}) == 1
        entries = read_cache_file(paths[0]).entries.keys()
        assert survived <= entries and moe_key(10_000_000 + round_) in entries
        survived = set(entries)
        assert _leftovers(paths[0].parent) == set()
    if len(survived) <= round_ + 2:  # a machine may be too busy for a write in time
        kill_after(PATIENCE, lambda: merge((round_ + 1) * 10_000))
        with locked(paths[0].parent):
            pass
        survived |= read_cache_file(paths[0]).entries.keys()
    assert len(survived) > round_ + 2, "nothing of those that were killed came through"


def _die_at(step: int, folder: Path, work: Callable[[], None]) -> Callable[[], bool]:
    """`work`, ended as kill -9 would before the `step`-th time it touches a file of the folder, which it
    names from within the opened folder."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal step
        touches = event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
        names = [str(argument) for argument in arguments[:2]]
        if touches and any("/" not in name or name.startswith(str(folder)) for name in names):
            step -= 1
            if step < 0:
                os._exit(9)

    def to_the_end() -> bool:
        work()
        return True

    return hearing(hook, to_the_end)


@pytest.mark.parametrize("already", [0, 3], ids=["first", "further"])
def test_a_write_may_die_before_every_single_step(tmp_path: Path, already: int) -> None:
    for step in range(200):
        paths = _make_group(tmp_path / str(step))
        if already:
            write_group(paths, _entries(already), TARGET, manifest=Manifest(TARGET))
        folder = paths[0].parent
        folder.mkdir(parents=True, exist_ok=True)
        finished = in_child(_die_at(step, folder, lambda paths=paths: _write_on(paths, 1)))
        assert _check_group(paths, already) in (already, already + 1)
        if finished:
            assert step > 20, "the hook saw too little to mean anything"
            return
    pytest.fail("the write never finished")


def test_a_removal_may_die_before_every_single_step(tmp_path: Path) -> None:
    for step in range(200):
        root = tmp_path / str(step)
        paths = _make_group(root)
        write_group(paths, _entries(3), TARGET, manifest=Manifest(TARGET))
        write_group(_make_group(root, KEPT), _entries(1), TARGET)
        finished = in_child(_die_at(step, paths[0].parent, lambda root=root: _prune_all_but_kept(root)))
        settle(find_caches(root), root)
        assert sum(path.exists() for path in paths) in (0, RANKS)
        _prune_all_but_kept(root)
        assert not any(path.exists() for path in paths)
        assert [p.read_bytes() for p in _make_group(root, KEPT)] == [serialise(TARGET, _entries(1))] * RANKS
        if finished:
            assert step > 10 and not paths[0].parent.exists()
            return
    pytest.fail("the removal never finished")
