"""kill -9 at random moments over the commands that write: files are whole, nothing is half landed, and later
commands clean up.

`SGL_TUNE_KILLS=300 pytest tests/sgl_tune/test_kills.py` looks for longer.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from sgl_tune.cache.layouts.cache import LOCK
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.record import read_cache_file
from tests.sgl_tune.cache.caches import files_of
from tests.sgl_tune.cache.children import in_child, kill_after, kill_once
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.stores import make
from tests.warm.processes import until


def _prune_unusable(made: Path, folder: Path) -> Work:
    """Good files stay, and bad ones are there whole or not at all."""
    bad = [f"rank_tp{rank}_pp0_dp0.json" for rank in range(100, 100 + _MANY)]

    def fill() -> None:
        _root_again(made, folder)
        for cache in find_caches(folder):
            for name in bad if cache.layout == "sglang" else ():
                (cache.path / name).write_bytes(b"no JSON")

    fill()
    words = ("prune", folder, "--unusable", "-y")
    good = {path: content for path, content in files_of(folder).items() if Path(path).name not in bad}

    def check() -> None:
        there = files_of(folder)
        assert good.items() <= there.items()
        assert all(there[path] == b"no JSON" for path in there if Path(path).name in bad)

    def again() -> None:
        _run(*words)
        assert files_of(folder) == good and not _ours(folder)
        fill()

    victims = tuple(path for path in folder.rglob("*") if path.name in bad)
    return Work("prune --unusable", words, folder, check, again, victims)


def _export(made: Path, folder: Path) -> Work:
    """Every file is one that vLLM reads whole."""

    def check(wanted: dict[str, bytes]) -> None:
        for path in folder.glob("*.json") if folder.exists() else ():
            assert read_cache_file(path).entries and path.read_bytes() == wanted[path.name]

    words = ("export", KEY, "--cache-dir", made / "root", "--to", "vllm", "-o", folder)
    return _from_nothing("export", folder, words, check)


def _from_nothing(
    name: str, folder: Path, words: tuple[object, ...], check: Callable[[dict[str, bytes]], None]
) -> Work:
    """A command that makes the folder. `check` gets the files that it makes if nobody kills it."""
    in_child(lambda: _run(*words))
    wanted = files_of(folder)
    shutil.rmtree(folder)

    def again() -> None:
        _run(*words)
        assert files_of(folder) == wanted and not _ours(folder)
        shutil.rmtree(folder)

    return Work(name, words, folder, lambda: check(wanted), again)


KILLS = int(os.environ.get("SGL_TUNE_KILLS", "20"))
KEY = "43939ebbce12ab17"
PATIENCE_SECONDS = 10.0
_OFTEN = 5
_MANY = 60


class Work(NamedTuple):
    """A command that writes below `folder`, and what must hold there after a kill and after the next run.
    `victims`: what it removes."""

    name: str
    words: tuple[object, ...]
    folder: Path
    check: Callable[[], None]
    again: Callable[[], None]
    victims: tuple[Path, ...] = ()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root, a bundle of it, and a folder that it was pushed to."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "cache-examples" / "cache", folder / "root")
    make.whole_root(folder / "root", kernels=8)
    _run("pack", folder / "root", "-o", folder / "whole.tar.gz")
    (folder / "store").mkdir()
    _run("push", folder / "whole.tar.gz", f"file://{folder}/store/whole.tar.gz")
    return folder


def _run(*words: object) -> None:
    assert run_here(*words).ends(0)


def _ours(root: Path) -> list[str]:
    """What our commands write under other names, and a lock is no part of."""
    return [str(path) for path in root.rglob(".sgl-tune*") if path.name != LOCK] if root.exists() else []


def _settled(root: Path) -> None:
    """Until the process that cleans up after a killed one is done."""
    until(lambda: not list(root.glob(".sgl-tune-" + "[0-9a-f]" * 16)), PATIENCE_SECONDS)


def _output(words: str, made: Path, folder: Path) -> Work:
    """One file, which is the old one or the new one."""
    file, wanted = folder / "b.tar.gz", (made / "whole.tar.gz").read_bytes()
    file.write_bytes(b"old")

    def check() -> None:
        assert file.read_bytes() in (b"old", wanted)

    def again() -> None:
        _run(*work.words)
        assert files_of(folder) == {"b.tar.gz": wanted} and not _ours(folder)
        file.write_bytes(b"old")

    work = Work(words, _named(words, made, folder), folder, check, again)
    return work


def _landing(words: str, made: Path, folder: Path) -> Work:
    """A root that a bundle lands in: every file that is there has its whole content."""

    def check(wanted: dict[str, bytes]) -> None:
        _settled(folder)
        for path, content in files_of(folder).items() if folder.exists() else ():
            ours = "/.sgl-tune" in f"/{path}" or path.startswith("flashinfer-aot/")
            assert ours or content == wanted[path], path

    return _from_nothing(words, folder, _named(words, made, folder), check)


def _named(words: str, made: Path, folder: Path) -> tuple[str, ...]:
    return tuple(word.replace("MADE", str(made)).replace("FOLDER", str(folder)) for word in words.split())


def _root_again(made: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made / "root", folder)


def _prune(made: Path, folder: Path) -> Work:
    """Caches go whole or stay whole."""
    _root_again(made, folder)
    wanted = files_of(folder)

    def check() -> None:
        assert all(content == wanted[path] for path, content in files_of(folder).items() if path in wanted)

    def again() -> None:
        _run("prune", folder, "--max-size", "0B", "-y")
        assert not [cache for cache in find_caches(folder) if cache.key] and not _ours(folder)
        _root_again(made, folder)

    return Work("prune", ("prune", folder, "--max-size", "0B", "-y"), folder, check, again)


def _prune_store(made: Path, folder: Path) -> Work:
    """An item is there with all of its files, or under its own name not at all."""

    def fill() -> None:
        _root_again(made, folder)
        for number in range(_MANY):
            make.triton_kernel(folder / "triton", f"more_{number}")

    fill()
    words = ("prune", folder, "--store", "all", "--max-size", "0B", "-y")
    wanted = files_of(folder)

    def check() -> None:
        there = files_of(folder)
        for kernel in (folder / "triton").iterdir() if (folder / "triton").exists() else ():
            if not kernel.name.startswith("."):
                mine = {path for path in wanted if path.startswith(f"triton/{kernel.name}/")}
                assert mine <= there.keys(), kernel.name

    def again() -> None:
        _run(*words)
        assert not list((folder / "triton").glob("*")) and not _ours(folder)
        fill()

    return Work("prune --store", words, folder, check, again, tuple((folder / "triton").iterdir()))


def _relocate(made: Path, folder: Path) -> Work:
    """Groups of kernels name the old place or the new one."""
    _root_again(made, folder)
    places = (str(made / "root"), "/one", "/two")
    turn = iter(range(10**6))
    words = ("relocate", folder, "--at", "/one")

    def check() -> None:
        for group in folder.glob("triton/*/__grp__*.json"):
            text = group.read_text()
            assert text.endswith("}}") and any(place in text for place in places)

    def again() -> None:
        place = "/two" if next(turn) % 2 else "/one"
        _run("relocate", folder, "--at", place)
        groups = list(folder.glob("triton/*/__grp__*.json"))
        assert groups and all(f'"{place}/triton/' in group.read_text() for group in groups)
        assert not _ours(folder)
        _root_again(made, folder)

    return Work("relocate", words, folder, check, again)


WORKS: dict[str, Callable[[Path, Path], Work]] = {
    "pack": partial(_output, "pack MADE/root -o FOLDER/b.tar.gz"),
    "push": partial(_output, "push MADE/whole.tar.gz file://FOLDER/b.tar.gz"),
    "pull_file": partial(_output, "pull file://MADE/store/whole.tar.gz -o FOLDER/b.tar.gz"),
    "unpack": partial(_landing, "unpack MADE/whole.tar.gz --cache-dir FOLDER"),
    "pull": partial(_landing, "pull file://MADE/store/whole.tar.gz --allow-unsigned-code --cache-dir FOLDER"),
    "prune": _prune,
    "prune_unusable": _prune_unusable,
    "prune_store": _prune_store,
    "relocate": _relocate,
    "export": _export,
}


def _moments(seed: str, work: Work) -> Iterator[float]:
    begun = time.perf_counter()
    in_child(lambda: run_here(*work.words))
    longest = 1.2 * (time.perf_counter() - begun)
    chance = random.Random(seed)
    for _ in range(max(1, KILLS // len(WORKS))):
        yield chance.uniform(0, longest)


@pytest.mark.parametrize("name", WORKS)
def test_a_kill_leaves_whole_files_and_the_next_one_cleans_up(name: str, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    work = WORKS[name](made, folder)
    moments = list(_moments(work.name, work))
    work.again()
    torn = 0
    for number, moment in enumerate(moments):
        kill_after(moment, lambda: run_here(*work.words))
        begun = folder.exists() and any(path.name.startswith(".sgl-tune-") for path in folder.iterdir())
        work.check()
        torn += begun or bool(_ours(folder))
        if number % _OFTEN == _OFTEN - 1 or number == len(moments) - 1:
            work.again()  # after several kills on top of each other
    print(f"{work.name}: {len(moments)} kills, {torn} of them in the middle of a write")


@pytest.mark.parametrize("name", ["prune_unusable", "prune_store"])
def test_a_prune_killed_between_removals_leaves_the_rest_whole(name: str, made: Path, tmp_path: Path) -> None:
    work = WORKS[name](made, tmp_path / "there")
    chance = random.Random(work.name)
    torn = 0
    for _ in range(max(1, KILLS // len(WORKS))):
        victim = chance.choice(work.victims)
        kill_once(lambda victim=victim: not victim.exists(), lambda: run_here(*work.words))
        torn += 0 < sum(path.exists() for path in work.victims) < len(work.victims)
        work.check()
        work.again()
    print(f"{work.name}: {torn} kills between two removals")
