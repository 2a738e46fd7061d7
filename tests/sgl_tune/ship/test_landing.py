"""Where a bundle lands: beside what is there or in its place, whose its files are, and nothing half-done."""

import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.record import read_cache_file
from tests.disks import mounted
from tests.sgl_tune.cache.caches import cache_folder, files_of, good, rank_names, write_ranks
from tests.sgl_tune.cache.children import in_child
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_key
from tests.sgl_tune.running import ROOT, run, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores import make

NOBODY = 65534
EXAMPLES = ROOT / "cache-examples" / "cache"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


def _pack(root: Path, to: Path, *more: object) -> Path:
    assert run_here("pack", root, "-o", to, *more).ends(0)
    return to


def _unpack(bundle: Path, to: Path, *more: object) -> Any:
    return told("unpack", bundle, "--cache-dir", to, *more)


def _tuned(root: Path, *buckets: int, **metadata: str) -> Path:
    entries = {moe_key(bucket): ["MoERunner", bucket, HOT] for bucket in buckets}
    write_ranks(cache_folder(root), rank_names(2), good({**TARGET, **metadata}, **entries))
    return root


def _entries(root: Path) -> set[str]:
    (first, *others) = (read_cache_file(file.path) for file in find_caches(root)[0].files)
    assert all(other.raw == first.raw for other in others)
    return set(first.entries)


def test_tactics_are_merged_or_replaced(tmp_path: Path) -> None:
    bundle = _pack(_tuned(tmp_path / "a", 5000, 5001), tmp_path / "a.tar.gz", "--force")
    there = _tuned(tmp_path / "b", 5001, 5002)
    ours, theirs = _entries(tmp_path / "a"), _entries(there)
    assert _unpack(bundle, there, "--dry-run")["tactics"][0]["did"] == "merged" and _entries(there) == theirs
    assert _unpack(bundle, there)["tactics"][0]["did"] == "merged"
    assert _entries(there) == ours | theirs
    assert _unpack(bundle, there, "--replace")["tactics"][0]["did"] == "replaced"
    assert files_of(there) == files_of(tmp_path / "a")
    assert _unpack(bundle, there)["tactics"][0]["did"] == "same"


def test_ranks_that_the_bundle_lacks_get_the_same_entries(tmp_path: Path) -> None:
    """A server deletes all files of a group whose ranks differ."""
    bundle = _pack(_tuned(tmp_path / "a", 5000), tmp_path / "a.tar.gz", "--force")
    there = _tuned(tmp_path / "b", 5001)
    write_ranks(cache_folder(there), rank_names(4), (cache_folder(there) / rank_names()[0]).read_bytes())
    _unpack(bundle, there)
    assert moe_key(5000) in _entries(there) and len(find_caches(there)[0].files) == 4


def test_what_was_tuned_elsewhere_is_refused_before_anything_lands(tmp_path: Path) -> None:
    bundle = _pack(_tuned(tmp_path / "a", 5000), tmp_path / "a.tar.gz", "--force")
    there = _tuned(tmp_path / "b", 5001, gpu="NVIDIA H100")
    before = files_of(there)
    ran = run_here("unpack", bundle, "--cache-dir", there)
    assert ran.code == 2 and "another environment (gpu is 'NVIDIA H100'" in ran.err and "--replace" in ran.err
    assert files_of(there) == before


def test_stores_are_added_to_item_by_item(whole: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    make.triton_kernel(there / "triton", "kernel_0")
    (changed,) = there.rglob("kernel_0.cubin")
    changed.write_bytes(make.CUBIN + b"other")
    make.triton_kernel(there / "triton", "mine")
    make.flashinfer_module(there / ".cache/flashinfer", "mine")
    done = _unpack(whole, there)
    assert (done["same"], done["replaced"], done["removed"]) == (7, 1, 0)
    assert changed.read_bytes() == make.CUBIN and list(there.rglob("mine.so"))
    assert done["offered"] == 2, "its module and the one that was there"
    assert run_here("verify", there).code == 0
    again = _unpack(whole, there)
    assert again["replaced"] == 0 and {row["did"] for row in again["tactics"]} == {"same"}


def test_stores_are_replaced_as_wholes(whole: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    make.triton_kernel(there / "triton", "mine")
    make.flashinfer_module(there / ".cache/flashinfer", "older", version="0.6.11")
    (there / "model_streamer").mkdir()
    _unpack(whole, there, "--replace", "--dry-run")
    assert list(there.rglob("mine.ttir")) and not (there / "inductor").exists()
    assert _unpack(whole, there, "--replace")["removed"] == 1
    assert not list(there.rglob("mine.ttir")) and list(there.rglob("older.so"))
    fresh = tmp_path / "fresh"
    _unpack(whole, fresh, "--at", there)
    odd = {path for path in files_of(fresh).items() ^ files_of(there).items()}
    assert all("older" in path or "offer.json" in path for path, _ in odd)
    assert not [path for path in there.iterdir() if path.name.startswith((".sgl-tune-", ".replaced"))]


@pytest.mark.parametrize("command", ["unpack", "pull"])
@pytest.mark.parametrize("way", ["new", "new/deeper"])
def test_a_dry_run_only_says_what_would_come(way: str, command: str, whole: Path, tmp_path: Path) -> None:
    named, trusted = (whole, ()) if command == "unpack" else (f"file://{whole}", ("--allow-unsigned-code",))
    words = (command, named, *trusted, "--cache-dir", tmp_path / way, "--dry-run")
    ran = run_here(*words, "--format", "json")
    told = json.loads(ran.out)
    tactics = told.get("unpacked", told)["tactics"]
    assert ran.code == 0 and {row["did"] for row in tactics} == {"new"}, ran.err
    assert f"Would be unpacked to {tmp_path / way}" in run_here(*words).out
    assert not list(tmp_path.iterdir())


def test_files_that_are_equal_are_files_of_their_own(whole: Path, tmp_path: Path) -> None:
    _unpack(whole, tmp_path / "new")
    assert {path.stat().st_nlink for path in (tmp_path / "new").rglob("*") if path.is_file()} == {1}


@pytest.mark.parametrize("place", ["triton", "flashinfer/autotune", ".cache"])
def test_no_link_on_the_way_is_followed(place: str, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "there" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    assert run_here("unpack", whole, "--cache-dir", tmp_path / "there").ends(3, f"{link}: is a link")
    assert not list((tmp_path / "elsewhere").iterdir()) and not files_of(tmp_path / "there")


def test_a_file_where_a_folder_belongs_is_told_before_anything_lands(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/inductor").write_text("mine")
    assert run_here("unpack", whole, "--cache-dir", tmp_path / "there").ends(2, "inductor: is no folder")
    assert files_of(tmp_path / "there") == {"inductor": b"mine"}


def test_another_spelling_of_the_model_is_another_key(tmp_path: Path) -> None:
    bundle = tmp_path / "a.tar.gz"
    assert run_here("pack", "4aae", "--cache-dir", EXAMPLES, "-o", bundle).code == 0
    done = _unpack(bundle, tmp_path / "new", "--rekey", "model_path=/models/qwen")
    (change,) = done["rekeyed"]
    assert change["before"] == "Qwen/Qwen3-30B-A3B" and change["after"] == "/models/qwen"
    assert [row["path"] for row in done["rewritten"]] == [f"{change['new_path']}/sgl-tune.json"]
    told = json.loads((tmp_path / "new" / change["new_path"] / "sgl-tune.json").read_text())
    assert told["key_parts"][0] == "/models/qwen"
    target = ROOT / "cache-examples" / "h200.env.json"
    ran = run_here("verify", tmp_path / "new", "--target", target)
    assert ran.code == 0 and "1 of 1 file loads" in ran.out, ran.out + ran.err
    back = _unpack(
        _pack(tmp_path / "new", tmp_path / "b.tar.gz"), tmp_path / "back", "--rekey", "/models/qwen=x"
    )
    assert back["rekeyed"][0]["after"] == "x"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("model_path", "is not a change"),
        ("model_path=", "is not a change"),
        ("tp=8", "only model_path can be changed"),
        ("model_path=/m", "has 2 model paths"),
        ("nobody/knows=/m", "only model_path can be changed"),
        ("Qwen/Qwen3-30B-A3B=/m", "does not say from what the key ad601cc9b3a885f2"),
    ],
)
def test_a_key_that_cannot_be_made_anew_is_refused(asked: str, why: str, whole: Path, tmp_path: Path) -> None:
    ran = run_here("unpack", whole, "--cache-dir", tmp_path / "new", "--rekey", asked)
    assert ran.code == 2 and why in ran.err and not (tmp_path / "new").exists()


@needs_root
def test_the_files_are_the_servers_own(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    _unpack(whole, tmp_path / "theirs")
    _unpack(whole, tmp_path / "new/cache", "--owner", NOBODY)
    for root in (tmp_path / "theirs", tmp_path / "new"):
        found = [root, *root.rglob("*")]
        assert len(found) > 80 and {path.stat().st_uid for path in found} == {NOBODY}


@needs_root
def test_another_user_packs_and_unpacks_the_same(whole: Path, tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o005)
    _unpack(whole, tmp_path / "ours")  # imports what a Python of root's own would not let them import
    (tmp_path / "theirs").mkdir(mode=0o777)
    (tmp_path / "theirs").chmod(0o777)
    shutil.copytree(whole.parent / "root", tmp_path / "theirs/root")
    for path in [tmp_path / "theirs/root", *(tmp_path / "theirs/root").rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)

    def work() -> list[Any]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.umask(0o077)
        os.environ["TMPDIR"] = str(tmp_path / "theirs")
        packed = run_here("pack", tmp_path / "theirs/root", "-o", tmp_path / "theirs/b.tar.gz")
        mine = tmp_path / "theirs/b.tar.gz"
        refused = run_here("unpack", mine, "--cache-dir", tmp_path / "theirs/x", "--owner", "root")
        if not os.access(sys.executable, os.X_OK):  # a Python of root's own, and who cleans up runs it
            return [packed.err, 0, "", refused.err]
        landed = run_here("unpack", mine, "--cache-dir", tmp_path / "theirs/new")
        return [packed.err, landed.code, landed.err, refused.err]

    packed, landed, said, refused = in_child(work)
    assert landed == 0, packed + said
    assert (tmp_path / "theirs/b.tar.gz").read_bytes() == whole.read_bytes()
    assert "only root may give files" in refused


def test_nobody_else_may_write_what_a_server_loads(whole: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _unpack(whole, tmp_path / "new")
    finally:
        os.umask(before)
    assert not [path for path in (tmp_path / "new").rglob("*") if path.stat().st_mode & stat.S_IWOTH]


@needs_root
def test_a_disk_that_is_too_small_is_told_first(whole: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=100k") as disk:
        assert run("unpack", whole, "--cache-dir", disk / "cache").ends(3, "the bundle needs")
        assert not list(disk.iterdir())
    with mounted(tmp_path / "disk", "size=8m,nr_inodes=40") as disk:
        assert run("unpack", whole, "--cache-dir", disk / "cache").ends(3, "no room to write")
        assert not list(disk.iterdir())


@needs_root
def test_a_store_on_a_disk_of_its_own_is_filled_too(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with mounted(tmp_path / "there/triton", "size=8m"):
        _unpack(whole, tmp_path / "there")
        assert run_here("verify", tmp_path / "there").ends(0) and list((tmp_path / "there/triton").iterdir())


def test_a_folder_whose_group_goes_to_what_is_made_in_it_is_filled(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o2775)
    _unpack(whole, tmp_path / "there")
