"""Writing rank files: what is kept, what is replaced, and what a bad disk leaves behind."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.cache import JOURNAL, LOCK, is_temporary
from sgl_tune.cache.manifest import BrokenManifest, Manifest, read_manifest
from sgl_tune.cache.record import read_cache_file, serialise
from sgl_tune.cache.store import Written, write_group
from sgl_tune.errors import WorkFailed
from tests.disks import mounted
from tests.sgl_tune.cache.children import (
    as_nobody,
    finish_child,
    hearing,
    in_child,
    start_child,
    start_holder,
)
from tests.sgl_tune.cache.corpus import HOT, TARGET, build_corpus, moe_entries, moe_key


def _paths(folder: Path, ranks: int = 4) -> list[Path]:
    return [folder / f"rank_tp{rank}_pp0_dp{rank}.json" for rank in range(ranks)]


def _entry(bucket: int, tactic: int = 7) -> dict[str, Any]:
    return {moe_key(bucket): ["MoERunner", tactic, HOT]}


def _contents(paths: list[Path]) -> set[bytes]:
    return {path.read_bytes() for path in paths}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {LOCK}


def test_a_group_gets_one_content_that_is_flashinfers_own(tmp_path: Path) -> None:
    paths = _paths(tmp_path / "new" / "folder")
    written = write_group(paths, moe_entries(), TARGET)
    assert _contents(paths) == {serialise(TARGET, moe_entries())}
    assert (written.entries, written.added, written.changed) == (14, 14, 0)
    assert _names(paths[0].parent) == {path.name for path in paths}


def test_entries_on_disk_stay_and_new_ones_win(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    paths[1].write_bytes(serialise(TARGET, _entry(1, tactic=1) | _entry(2, tactic=1)))
    paths[2].write_bytes(serialise(TARGET, _entry(3, tactic=1)))
    written = write_group(paths, _entry(2, tactic=9) | _entry(4, tactic=9), TARGET)
    entries = read_cache_file(paths[0]).entries
    tactics = {key: value[1] for key, value in entries.items()}
    assert tactics == {moe_key(1): 1, moe_key(2): 9, moe_key(3): 1, moe_key(4): 9}
    assert len(_contents(paths)) == 1
    assert (written.entries, written.added, written.changed) == (4, 1, 1)


def test_what_is_not_understood_survives(tmp_path: Path) -> None:
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    strange = {"hand written": ["R", {"a": [1.5, None]}, ["x"], "fourth"]}
    path.write_bytes(serialise({**TARGET, "gpu": "*", "owner": "ci"}, strange, {"megamoe": [1]}))
    write_group([path], _entry(1), TARGET)
    file = read_cache_file(path)
    assert file.entries == strange | _entry(1)
    assert file.records == {"megamoe": [1]}
    assert file.metadata == {**TARGET, "gpu": "*", "owner": "ci"}
    assert file.generation == file.computed_generation


def test_an_unknown_environment_is_replaced_and_another_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_bytes(serialise({**TARGET, "cudnn_version": "unknown"}, _entry(1)))
    assert "replaced" in write_group([path], _entry(2), TARGET).notes[0]
    assert read_cache_file(path).entries == _entry(2)

    other = {**TARGET, "gpu": "NVIDIA B200"}
    with pytest.raises(WorkFailed, match="gpu is 'NVIDIA H200' there and 'NVIDIA B200' here"):
        write_group([path], _entry(3), other)
    assert read_cache_file(path).entries == _entry(2)
    write_group([path], _entry(3), other, replace_conflicting=True)
    assert read_cache_file(path).metadata == other
    assert read_cache_file(path).entries == _entry(3)


@pytest.mark.parametrize("name", sorted(build_corpus(TARGET, moe_entries())))
def test_no_existing_file_stops_a_write(tmp_path: Path, name: str) -> None:
    """Broken files are set aside. Whatever was there, the group ends complete and loadable."""
    paths = _paths(tmp_path, 2)
    case = build_corpus(TARGET, moe_entries())[name]
    paths[1].write_bytes(case.raw)
    written = write_group(paths, _entry(77), TARGET, replace_conflicting=True)
    assert len(_contents(paths)) == 1
    assert moe_key(77) in read_cache_file(paths[0]).entries
    aside = paths[1].with_name(paths[1].name + ".broken")
    if case.loads not in ("loaded", "hard", "soft"):
        assert aside.read_bytes() == case.raw
        assert any("broken" in note for note in written.notes)
    assert not aside.exists() or aside.read_bytes() == case.raw


def test_a_folder_in_the_place_of_a_file_is_a_clear_failure(tmp_path: Path) -> None:
    paths = _paths(tmp_path, 2)
    paths[1].mkdir()
    with pytest.raises(WorkFailed, match=r"rank_tp1_pp0_dp1\.json: is a folder"):
        write_group(paths, _entry(1), TARGET)
    assert _names(tmp_path) == {paths[1].name}


def test_files_are_readable_as_the_umask_says(tmp_path: Path) -> None:
    def write() -> None:
        os.umask(0o027)
        write_group(_paths(tmp_path / "c"), _entry(1), TARGET, manifest=Manifest(TARGET))

    in_child(write)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()}
    assert set(modes.values()) == {0o640}, modes


def test_the_manifest_names_every_groups_digest(tmp_path: Path) -> None:
    first, second = _paths(tmp_path, 2), [tmp_path / f"rank_tp{r}_pp1_dp{r}.json" for r in range(2)]
    manifest = Manifest(TARGET, key_parts=("model", "torch.bfloat16"), deployment={"tp": 2}, seconds=1.5)
    one = write_group(first, _entry(1), TARGET, manifest=manifest)
    other = write_group(second, _entry(2), TARGET, manifest=manifest)
    saved = read_manifest(tmp_path / "sgl-tune.json")
    assert saved.files == {**dict.fromkeys([p.name for p in first], one.digest),
                           **dict.fromkeys([p.name for p in second], other.digest)}  # fmt: skip
    assert (saved.key_parts, saved.deployment, saved.seconds) == (manifest.key_parts, {"tp": 2}, 1.5)
    assert saved.created and saved.created.endswith("+00:00")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "7", '{"schema_version": 2, "environment": {}}', '{"schema_version": 1}', "[" * 100_000]
    + [json.dumps({"environment": TARGET})]
    + [
        json.dumps({"schema_version": 1, "environment": TARGET, **bad})
        for bad in (
            {"files": [1]},
            {"files": {"a": 1}},
            {"key_parts": "abc"},
            {"seconds": True},
            {"sglang": 5},
            {"environment": None},
            {"deployment": "tp=8"},
            {"measured": {"key": 7}},
            {"measured": {"key": {"best_ms": "fast"}}},
        )
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sgl-tune.json"
    path.write_text(content)
    with pytest.raises(BrokenManifest, match="not a manifest of sgl-tune"):
        read_manifest(path)
    write_group([tmp_path / "rank_tp0_pp0_dp0.json"], _entry(1), TARGET, manifest=Manifest(TARGET))
    assert list(read_manifest(path).files) == ["rank_tp0_pp0_dp0.json"]


def test_64_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "rank_tp0_pp0_dp0.json"
    children = [
        start_child(lambda bucket=bucket: write_group([path], _entry(bucket, tactic=bucket), TARGET))
        for bucket in range(64)
    ]
    for child in children:
        assert isinstance(finish_child(*child), Written)
    assert {key: value[1] for key, value in read_cache_file(path).entries.items()} == {
        moe_key(bucket): bucket for bucket in range(64)
    }


def test_a_stock_writer_that_takes_no_lock_is_noticed(tmp_path: Path) -> None:
    """The stock writer saves after we have read, when our own new file is begun."""
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_bytes(serialise(TARGET, _entry(1)))
    saves = [serialise(TARGET, _entry(2)), serialise(TARGET, _entry(2) | _entry(3))]

    def meanwhile(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and is_temporary(Path(str(arguments[0])).name) and saves:
            content = saves.pop(0)
            (tmp_path / "stock").write_bytes(content)
            (tmp_path / "stock").replace(path)

    in_child(hearing(meanwhile, lambda: write_group([path], _entry(4), TARGET)))
    assert read_cache_file(path).entries == _entry(2) | _entry(3) | _entry(4)
    assert _names(tmp_path) == {path.name}


def test_waiting_says_for_whom_and_gives_up_in_time(tmp_path: Path) -> None:
    child, reader = start_holder(tmp_path, tmp_path / "ready", lambda: time.sleep(30))
    try:
        said: list[str] = []
        with pytest.raises(WorkFailed, match=rf"still in use by process {child} on \S+ \(.*\) after 3 s"):
            write_group(_paths(tmp_path), _entry(1), TARGET, timeout=3, say=said.append)
        assert len(said) == 1 and f"waiting for process {child}" in said[0]
    finally:
        os.kill(child, 9)
        finish_child(child, reader)
    assert write_group(_paths(tmp_path), _entry(1), TARGET, timeout=3).entries == 1


def test_a_folder_that_a_prune_removes_while_we_wait_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "key"

    def remove() -> None:
        time.sleep(0.3)
        (folder / LOCK).unlink()
        folder.rmdir()

    child = start_holder(folder, tmp_path / "ready", remove)
    write_group(_paths(folder), _entry(1), TARGET)
    finish_child(*child)
    assert len(_contents(_paths(folder))) == 1


def test_a_full_disk_leaves_the_old_group(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        paths = _paths(disk)
        write_group(paths, _entry(1), TARGET)
        before = _contents(paths)
        with pytest.raises(WorkFailed, match=r"No space left on device.*nothing was changed"):
            write_group(paths, moe_entries(tuple(range(40))), TARGET)
        assert _contents(paths) == before
        assert _names(disk) == {path.name for path in paths}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_read_only_folder_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    write_group(_paths(folder), _entry(1), TARGET)
    before = _contents(_paths(folder))
    with pytest.raises(WorkFailed, match="not writable"):
        as_nobody(folder, lambda: write_group(_paths(folder), _entry(2), TARGET))
    assert _contents(_paths(folder)) == before
    assert not (folder / JOURNAL).exists()
