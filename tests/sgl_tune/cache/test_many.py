"""Many caches: what several processes say of them is what one says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.folder import Folder
from sgl_tune.cache.layouts import find_caches
from sgl_tune.cache.layouts.names import MANIFEST
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import serialise
from sgl_tune.cache.scan import Scanner
from sgl_tune.processes import forks
from sgl_tune.verify.expected import Checked
from sgl_tune.verify.verify import Server, verify
from tests.sgl_tune.cache.caches import HERE, cache_folder
from tests.sgl_tune.cache.corpus import HOT, TARGET, build_corpus, moe_entries, moe_key


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Each file of the corpus beside a good one, good ones that are another each, and odd ones."""
    cases = list(build_corpus(TARGET, moe_entries()).values())
    for number in range(120):
        folder = cache_folder(tmp_path, key=f"{number:016x}")
        good = serialise(TARGET, {**moe_entries(), moe_key(1): ["MoERunner", number, HOT]})
        (folder / "rank_tp0_pp0_dp0.json").write_bytes(good)
        other = cases[number].raw if number < len(cases) else good
        (folder / "rank_tp1_pp0_dp0.json").write_bytes(other)
    (folder / MANIFEST).write_text("{")
    (folder / "rank_tp2_pp0_dp0.json").symlink_to("rank_tp1_pp0_dp0.json")
    os.mkfifo(folder / "rank_tp3_pp0_dp0.json")
    return tmp_path


def _said(root: Path, cores: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    monkeypatch.setattr(forks, "_cores", lambda: cores)
    monkeypatch.setattr(forks, "_WORTH_IT", 60)
    monkeypatch.setattr(forks, "is_alone", lambda: True)
    caches = find_caches(root)
    scanned = Scanner(digests=True).scan_all(caches)
    report = verify([Checked(cache) for cache in caches], Server(HERE))
    return scanned, [cache.agree for cache in scanned], report


def test_several_processes_say_what_one_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = (_said(root, cores, monkeypatch) for cores in (1, 3))
    assert repr(alone) == repr(together)
    *_, report = alone
    assert {"is-a-link", "not-a-file", "not-json"} <= {found.code for found in report.all_findings()}


def _listed(root: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    monkeypatch.setattr(forks, "_cores", lambda: processes)
    monkeypatch.setattr(forks, "is_alone", lambda: True)
    errors: list[str] = []
    return Scanner(digests=True).resolve(None, root, lambda error: errors.append(str(error))), errors


def test_caches_are_found_and_read_in_one_pass_as_in_two(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them may not be looked into, and one has all that a folder may have beside the ranks."""
    folder = cache_folder(root, key=f"{107:016x}")
    for name in (".sgl-tune.journal", ".a.tmp", "rank_tp0_pp0_dp0.json.broken", "runs/a.json", "runs/.b.tmp"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{")
    manifest = Manifest({"gpu": "H200"}, ("a", "b"), {"model": "m"}, seconds=1.5, files={"x": "y"})
    (folder / MANIFEST).write_bytes(manifest.to_bytes())
    entries = folder.parent / "deeper" / "still" / "v2" / "0a" / "entries"
    entries.mkdir(parents=True)
    (entries / "b.json").write_text('{"key": "k", "runner": "r", "tactic": 1}')
    _refuse_to_enter(monkeypatch, f"{9:016x}", f"{109:016x}")
    in_two = Scanner(digests=True).scan_all(find_caches(root, lambda error: None))
    alone, together = (_listed(root, processes, monkeypatch) for processes in (1, 3))
    assert repr(alone) == repr(together)
    assert repr(in_two) == repr(alone[0])
    assert len(alone[1]) == 2
    assert any(cache.manifest == manifest for cache in together[0])


def _refuse_to_enter(monkeypatch: pytest.MonkeyPatch, *closed: str) -> None:
    enter = Folder.enter

    def entered(self: Folder, name: str, create: bool = False) -> Folder:
        if name in closed:
            raise PermissionError(errno.EACCES, "Permission denied", f"{self.path}/{name}")
        return enter(self, name, create)

    monkeypatch.setattr(Folder, "enter", entered)
