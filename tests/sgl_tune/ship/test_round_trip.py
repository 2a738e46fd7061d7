"""Packed and unpacked: the same bytes, wherever and by whomever, and what lands is a hit."""

import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.sgl_tune.cache.caches import files_of
from tests.sgl_tune.running import ROOT, run, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores.make import LIBRARY, write

CACHES = ROOT / "cache-examples" / "cache"
TARGET = ROOT / "cache-examples" / "h200.env.json"


@pytest.fixture
def root(whole: Path) -> Path:
    return whole.parent / "root"


@pytest.mark.parametrize("suffix", ["tar.gz", "tar.zst"])
def test_what_is_unpacked_is_what_was_packed(root: Path, tmp_path: Path, suffix: str) -> None:
    if suffix.endswith("zst"):
        pytest.importorskip("zstandard")
    bundle = tmp_path / f"bundle.{suffix}"
    packed = told("pack", root, "-o", bundle)
    assert packed["digest"] == f"sha256:{sha256(bundle.read_bytes()).hexdigest()}"
    done = told("unpack", bundle, "--cache-dir", tmp_path / "new", "--digest", packed["digest"])
    before, after = files_of(root), files_of(tmp_path / "new")
    rewritten = {row["path"] for row in done["rewritten"]}
    assert rewritten and all("__grp__" in path for path in rewritten)
    offered = {path for path in after if path.startswith("flashinfer-aot/")}
    assert {path for path in after if before.get(path) != after[path]} == rewritten | offered
    left = before.keys() - after.keys()
    assert all("ninja" in path or path.endswith(".cuda.o") or path.startswith("nv/") for path in left)
    assert run_here("verify", tmp_path / "new", "--target", TARGET).code == 0


def test_two_folders_users_umasks_and_days_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "elsewhere/copy")
    for path in (tmp_path / "elsewhere").rglob("*"):
        os.utime(path, (10**9, 10**9))
    assert run_here("relocate", tmp_path / "elsewhere/copy").code == 0
    digests = {told("pack", root, "-o", tmp_path / "a.tar.gz")["digest"]}
    before = os.umask(0o077)
    try:
        again = run(
            "pack", tmp_path / "elsewhere/copy", "-o", tmp_path / "b.tar.gz", "-q", LC_ALL="C", TZ="X-9"
        )
    finally:
        os.umask(before)
    assert {again.out.strip()} == digests
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_a_bundle_is_listed_and_judged_as_a_folder_is(root: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    digest = told("pack", root, "-o", bundle)["digest"]
    listed = told("inspect", bundle)
    assert listed["bundle"]["digest"] == digest
    assert {cache["path"] for cache in listed["caches"]} == {
        str(bundle / path.relative_to(root).parent) for path in root.rglob("rank_tp0_pp0_dp0.json")
    }
    assert {one["store"] for one in listed["stores"]} == {row["store"] for row in listed["bundle"]["stores"]}
    judged = told("verify", bundle, "--target", TARGET)
    assert {file["verdict"] for file in judged["files"]} == {"hit"}
    assert all(file["path"].startswith(f"{bundle}/") for file in judged["files"])
    for command in ("inspect", "verify"):
        ran = run_here(command, bundle)
        assert ran.code == 0 and "sgl-tune-" not in ran.out.replace("sgl-tune-bundle", ""), ran.out
    other = tmp_path / "env.json"
    other.write_text(TARGET.read_text().replace("NVIDIA H200", "NVIDIA H100"))
    assert run_here("verify", bundle, "--target", other).ends(1, out="other-environment")
    ran = run_here("unpack", bundle, "--target", other, "--cache-dir", tmp_path / "new")
    assert ran.code == 1 and not (tmp_path / "new").exists()


def test_host_halves_travel_as_they_are(tmp_path: Path) -> None:
    module = f"0.7.2/90/norm/{sha256(LIBRARY).hexdigest()}.so"
    write(tmp_path / "cache/sgl-tune/halves" / module, LIBRARY)
    write(tmp_path / "cache/sgl-tune/halves" / module.replace("norm", "cut"), b"")
    bundle = tmp_path / "bundle.tar.gz"
    places = {"XDG_CACHE_HOME": tmp_path / "cache", "SGLANG_CACHE_DIR": tmp_path / "none"}
    packed = run("pack", "--store", "halves", "-o", bundle, **{name: str(at) for name, at in places.items()})
    assert packed.code == 0, packed.err
    told("unpack", bundle, "--cache-dir", tmp_path / "new")
    assert files_of(tmp_path / "new") == {f"halves/{module}": LIBRARY}


def test_push_packs_what_is_no_bundle_yet_and_unpack_takes_an_address(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    store = tmp_path / "store"
    store.mkdir()
    pushed = told("push", "4aae", store.as_uri(), "--cache-dir", CACHES)
    assert run_here("pack", "4aae", "--cache-dir", CACHES, "-o", tmp_path / "a.tar.gz").code == 0
    assert (store / "4aae.tar.gz").read_bytes() == (tmp_path / "a.tar.gz").read_bytes()
    assert pushed["bundle"]["gpu"] == "NVIDIA H200"
    done = told("unpack", store.as_uri(), "--cache-dir", tmp_path / "new", "--target", TARGET)
    assert done["digest"] == pushed["bundle"]["digest"] and done["tactics"][0]["did"] == "new"
    assert set(files_of(tmp_path / "new").values()) <= set(files_of(CACHES).values())
    assert told("push", root, store.as_uri())["bundle"]["reference"].endswith("/root.tar.gz")
    ran = run_here("unpack", f"{store.as_uri()}/root.tar.gz", "--cache-dir", tmp_path / "code")
    assert ran.code == 2 and "it is not signed" in ran.err, "it comes from where others write"
    for words, why in ((("none",), "none"), (("none.tar.gz",), "none.tar.gz: no such file")):
        ran = run_here("push", *words, store.as_uri(), "--cache-dir", CACHES)
        assert ran.code == 2 and why in ran.err and len(list(store.iterdir())) == 2
