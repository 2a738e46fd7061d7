"""What goes into a bundle, what stays out, and what is refused."""

import gzip
import io
import os
import random
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.ship.members import Member, compressed, header, padded
from tests.sgl_tune.cache.caches import cache_folder, rank_names, write_ranks
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores import make

EXAMPLES = ROOT / "cache-examples" / "cache"
TARGET = ROOT / "cache-examples" / "h200.env.json"
QWEN = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", "--gpu", "h200")


_pack = partial(told, "pack")


def _names(bundle: Path) -> list[str]:
    with tarfile.open(bundle) as tar:
        return tar.getnames()


@pytest.mark.parametrize(
    "arguments",
    [("4aae",), (EXAMPLES / "flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a",)],
    ids=["key", "folder"],
)
def test_a_cache_is_chosen_as_everywhere(arguments: tuple[object, ...], tmp_path: Path) -> None:
    target = ["--target", TARGET, "--cache-dir", EXAMPLES]
    packed = _pack("-o", tmp_path / "a.tar.gz", *target, *arguments)
    assert [cache["key"] for cache in packed["caches"]] == ["4aaede739ed1db5a"]
    assert packed["caches"][0]["sglang"] == "0.5.17" and packed["caches"][0]["environment"]["gpu"]
    assert packed["objections"] == [] and not packed["stores"]


def test_what_is_no_hit_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "env.json"
    other.write_text(TARGET.read_text().replace("NVIDIA H200", "NVIDIA H100"))
    words = ("pack", "4aae", "--cache-dir", EXAMPLES, "-o", tmp_path / "a.tar.gz", "--target", other)
    assert run_here(*words).ends(1, "ignored: tuned elsewhere") and not (tmp_path / "a.tar.gz").exists()
    assert run_here(*words, "--force").code == 0
    broken = cache_folder(tmp_path / "broken")
    write_ranks(broken, rank_names(2))
    (broken / rank_names(2)[1]).write_text("{")
    assert run_here("pack", tmp_path / "broken", "-o", tmp_path / "b.tar.gz").ends(1, "deleted: ", "--force")


def test_a_deployment_without_its_cache_is_refused(tmp_path: Path) -> None:
    assert run_here("pack", *QWEN, "--cache-dir", tmp_path, "-o", tmp_path / "a.tar.gz").ends(1, "missing")
    ran = run_here("pack", *QWEN[:2], "--gpu", "h200", "-o", tmp_path / "a.tar.gz")
    assert ran.code == 2 and "nothing to pack" in ran.err and "tunes nothing" in ran.err


def test_what_is_of_no_use_elsewhere_stays(tmp_path: Path) -> None:
    root = make.whole_root(tmp_path / "root")
    (root / "gpu_p2p_access_cache_for_0,1.json").write_text("{}")
    folder = cache_folder(root)
    write_ranks(folder, rank_names())
    (folder / ".sgl-tune.lock").write_text("process 1")
    (folder / ".sgl-tune-1-00000000.tmp").write_text("half")
    (folder / "rank_tp0_pp0_dp0.json.broken").write_text("{")
    (folder / "runs").mkdir()
    (folder / "runs/20261122.json").write_text("{}")
    kernel = make.triton_kernel(root / "triton", "half")
    (kernel / "__grp__half.json").unlink()
    (make.triton_kernel(root / "triton", "linked") / "extra").symlink_to("/etc/passwd")
    (root / "triton/notes.txt").write_text("mine")
    (make.gemm(root / "deep_gemm", "lacks_its_cubin") / "kernel.cubin").unlink()
    packed = _pack(root, "-o", tmp_path / "a.tar.gz")
    names = _names(tmp_path / "a.tar.gz")
    ours = (".sgl-tune", ".tmp", "broken", "runs", "half", "notes")
    for odd in (*ours, "gpu_p2p", "extra", "lacks", "nv/", ".ninja"):
        assert not [name for name in names if odd in name], odd
    assert packed["left_out"] == {
        "DeepGEMM's kernels: items that would end a start": 1,
        "Triton's kernels: items that are half-written": 1,
        "broken files set aside": 1,
        "links, pipes and devices": 1,
        "ninja's files and objects: of no use in another place": 2,
        "results of old runs": 1,
        "temporary files of writers": 1,
        "the driver's compiled PTX: of this machine alone": 1,
    }


def test_stores_are_added_and_left_out_by_name(tmp_path: Path) -> None:
    root = make.whole_root(tmp_path / "root")
    shutil.copytree(EXAMPLES / "flashinfer", root / "flashinfer")

    def stores(*more: object) -> tuple[list[str], int]:
        packed = _pack(root, "-o", tmp_path / "a.tar.gz", *more)
        return [row["store"] for row in packed["stores"]], len(packed["caches"])

    assert stores("--store", "tactics") == ([], 3)
    assert stores("--store", "triton", "--store", "deep-gemm") == (["deep-gemm", "triton"], 3)
    assert len(stores()[0]) == len(stores("--store", "all")[0]) == 8
    packed = _pack("4aae", "--cache-dir", root, "--store", "triton", "-o", tmp_path / "a.tar.gz")
    assert len(packed["caches"]) == 1 and [row["store"] for row in packed["stores"]] == ["triton"]
    assert run_here("pack", root, "--store", "rocm", "-o", tmp_path / "a.tar.gz").ends(2, "no such store")


def test_a_store_of_another_name_is_packed_where_the_newest_release_has_it(tmp_path: Path) -> None:
    make.triton_kernel(tmp_path / "old/.triton/cache", "k")
    make.graph(tmp_path / "old/torch_compile_cache/x/rank_0_0/backbone/inductor_cache", "g")
    make.sglang_leaf(tmp_path / "old/.cache/sglang/jit", "sgl_kernel_jit_norm")
    make.write(tmp_path / "old/.cache/tvm-ffi/libbridge.so", make.LIBRARY)
    packed = _pack(tmp_path / "old", "-o", tmp_path / "a.tar.gz")
    tops = {name.split("/")[0] for name in _names(tmp_path / "a.tar.gz")}
    assert "torch_compile_cache/x/rank_0_0/backbone/inductor_cache" in _names(tmp_path / "a.tar.gz")
    assert tops == {"sgl-tune-bundle.json", "triton", "torch_compile_cache", "jit", "tvm-ffi"}, packed


def test_files_that_are_named_by_one_gpu_need_force(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), ["rank_tp0_pp0_dp0_gpu6f4d.json"])
    assert run_here("pack", tmp_path, "-o", tmp_path / "a.tar.gz").ends(1, "is named by one GPU")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-o", "a.zip"), "the name does not say which compression"),
        (("-o", "a.tar.gz", "--at", "here"), "no absolute path"),
        (("-o", "a.tar.gz", "ffff"), "no key in"),
        (("-o", "/proc/a.tar.gz", "4aae"), "cannot be written"),
    ],
)
def test_wrong_usage_is_told_first(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert run_here("pack", *words, "--cache-dir", EXAMPLES).ends(2, why)


def test_a_file_that_is_written_meanwhile_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make.whole_root(tmp_path / "root")
    kernel = next((root / "deep_gemm").rglob("kernel.cu"))
    before = kernel.read_bytes()
    hashed = os.read

    def read(file: int, size: int) -> bytes:
        """As a server that compiles anew, once the digest was taken."""
        raw = hashed(file, size)
        if raw == before:
            kernel.write_bytes(before[:-1] + b"x")
        return raw

    monkeypatch.setattr(os, "read", read)
    ran = run_here("pack", root, "-o", tmp_path / "a.tar.gz")
    assert ran.code == 3 and "somebody wrote to it while it was packed" in ran.err
    assert not [path for path in tmp_path.iterdir() if path.name != "root"]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_pieces_change_no_byte(codec: Any) -> None:
    if codec == "zstd":
        pytest.importorskip("zstandard")
    draw = random.Random(5)
    pieces = [bytes(draw.choices(b"abcdefgh", k=draw.randrange(60_000))) for _ in range(30)]
    whole = b"".join(pieces)
    assert len(whole) > 1 << 19
    made = b"".join(compressed(iter(pieces), codec))
    for size in (7_777, 1 << 18, len(whole)):
        cut = (whole[at : at + size] for at in range(0, len(whole), size))
        assert b"".join(compressed(cut, codec)) == made
    if codec == "gzip":
        assert gzip.decompress(made) == whole


@pytest.mark.parametrize(
    "path", ["triton/a", "triton/" + "x" * 93, "triton/" + "x" * 200, "triton/" + "a/" * 60 + "b"]
)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_tar_reads_every_header(path: str, kind: Any) -> None:
    link = path + "2" if kind == "link" else ""
    raw = header(Member(path, kind, 3, link=link)) + (padded(b"abc") if kind == "file" else b"") + bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        (found,) = tar.getmembers()
    assert found.name == path and found.linkname == link
    kinds = {"file": found.isfile(), "folder": found.isdir(), "link": found.islnk()}
    assert [one for one, is_it in kinds.items() if is_it] == [kind]
    assert (found.uid, found.gid, found.mtime, found.uname) == (0, 0, 0, "")
    assert found.mode == (0o755 if kind == "folder" else 0o644)
