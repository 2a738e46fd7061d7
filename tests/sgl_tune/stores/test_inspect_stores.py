"""`sgl-tune inspect` over stores of compiled kernels: what is there, for what, and what no start can use."""

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores import make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make.whole_root(tmp_path / "root")


_inspect = partial(told, "inspect")


def _items(store: str, path: Path) -> dict[str, Any]:
    (found,) = _inspect("--store", store, path)["stores"]
    return {entry["name"]: entry for entry in found["entries"]}


def test_a_folder_of_stores_is_listed_by_what_is_in_it(root: Path) -> None:
    found = _inspect(root)
    rows = {(row["store"], Path(row["path"]).relative_to(root).as_posix()): row for row in found["stores"]}
    assert set(rows) == {
        ("flashinfer-jit", ".cache/flashinfer"),
        ("flashinfer-cubins", ".cache/flashinfer/cubins"),
        ("cute-dsl", "cute_aot"),
        ("deep-gemm", "deep_gemm"),
        ("inductor", "inductor"),
        ("tvm-ffi", "jit"),
        ("tvm-ffi", "tvm-ffi"),
        ("driver", "nv"),
        ("tilelang", "tilelang"),
        ("triton", "triton"),
    }
    assert found["caches"] == []
    triton = rows["triton", "triton"]
    assert (triton["items"], triton["files"], triton["incomplete"]) == (3, 17, 0)
    told = [triton[part] for part in ("versions", "archs", "pythons")]
    assert told == [{"triton": ["3.6.0"]}, ["sm90"], ["3.11"]]
    assert rows["flashinfer-jit", ".cache/flashinfer"]["versions"] == {"flashinfer": ["0.7.2"]}
    assert rows["deep-gemm", "deep_gemm"]["archs"] == ["sm90"]
    assert rows["driver", "nv"]["ships"] is False
    assert all(row["incomplete"] == 0 and row["entries"] is None for row in rows.values())


def test_stores_elsewhere_are_known_by_their_content(tmp_path: Path) -> None:
    make.triton_kernel(tmp_path / "a/b/whatever", "k")
    make.gemm(tmp_path / "gemm-of-last-week")
    make.tilelang_kernel(tmp_path / "tl" / "x")
    found = _inspect(tmp_path)["stores"]
    assert {row["store"] for row in found} >= {"triton", "deep-gemm"}


def test_one_store_is_listed_item_by_item(root: Path) -> None:
    items = _items("triton", root)
    kernels = [entry for entry in items.values() if entry["arch"]]
    assert len(items) == 3 and [entry["arch"] for entry in kernels] == ["sm90", "sm90"]
    assert all(entry["complete"] and entry["problem"] is None for entry in items.values())


def test_without_a_path_the_places_of_the_release_are_looked_in(tmp_path: Path) -> None:
    root = make.whole_root(tmp_path / "r")
    given = {"SGLANG_CACHE_DIR": str(root), "HOME": "/nowhere"}
    ran = run("inspect", "--store", "all", "--format", "json", **given)
    found = {row["store"] for row in json.loads(ran.out)["stores"]}
    assert {"triton", "inductor", "flashinfer-jit", "flashinfer-cubins", "deep-gemm", "cute-dsl"} <= found


def test_half_written_items_are_said(root: Path) -> None:
    (next((root / "triton").glob("*/__grp__kernel_0.json"))).unlink()
    (next((root / "deep_gemm").glob("cache/*/kernel.cubin"))).unlink()
    next((root / ".cache").rglob("norm.so")).unlink()
    next((root / "tilelang").rglob("params.json")).unlink()
    next((root / "jit").rglob("*.so")).unlink()
    next((root / "inductor/fxgraph").rglob("f*/*")).write_bytes(b"")
    next((root / "cute_aot").rglob("*.o")).write_bytes(b"")
    next((root / ".cache/flashinfer/cubins").rglob("*.cubin")).write_bytes(b"")
    rows = {row["path"].rpartition("/")[2]: row["incomplete"] for row in _inspect(root)["stores"]}
    assert rows == {"triton": 1, "deep_gemm": 1, "flashinfer": 1, "tilelang": 1, "jit": 1, "inductor": 1,
                    "cute_aot": 1, "cubins": 1, "nv": 0, "tvm-ffi": 0}  # fmt: skip


def test_nothing_is_followed_out_of_the_root_and_nothing_is_waited_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    make.triton_kernel(outside, "secret")
    (kernel,) = outside.iterdir()
    (root / "triton" / kernel.name).symlink_to(kernel)
    (root / "elsewhere").symlink_to(outside)
    inside = next((root / "triton").glob("*/kernel_0.json")).parent
    (inside / "out.json").symlink_to("/etc/passwd")
    os.mkfifo(inside / "pipe")
    monkeypatch.chdir(inside)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    (root / "triton" / "loop").symlink_to(root)
    (root / "triton" / "a\nb\x1b[31m").mkdir()
    items = _items("triton", root)
    assert len(items) == 3 and not any("secret" in entry["path"] for entry in items.values())
    assert sorted(items[inside.name]["odd"]) == ["out.json", "pipe", "socket"]
    assert all(row["store"] != "triton" or row["items"] == 3 for row in _inspect(root)["stores"])


def test_hostile_descriptions_are_a_line_each(root: Path) -> None:
    kernels = sorted((root / "triton").glob("*/__grp__*.json"))
    described = [path.with_name(path.name.removeprefix("__grp__")) for path in kernels]
    described[0].write_text("[" * 100_000)
    described[1].write_bytes(b'{"target": {"backend": "cuda", "arch": 1e400}, "triton_version": {"a": NaN}}')
    items = _items("triton", root)
    assert "cannot be read" in items[described[0].parent.name]["problem"]
    assert items[described[1].parent.name]["arch"] is None
    described[0].write_bytes(b"{" + b" " * (17 << 20) + b"}")
    assert "more than a cache file can hold" in _items("triton", root)[described[0].parent.name]["problem"]


def test_names_that_no_terminal_should_see_are_escaped(tmp_path: Path) -> None:
    make.write(tmp_path / "tvm-ffi" / "a\x1b[31m\nb" / "x.so", make.LIBRARY)
    ran = run_here("inspect", "--store", "tvm-ffi", tmp_path / "tvm-ffi")
    assert ran.code == 0 and "\x1b" not in ran.out and "\\x1b[31m\\nb" in ran.out
    bytes_name = os.fsdecode(os.fsencode(tmp_path / "tvm-ffi") + b"/\xff\xfe")
    os.mkdir(bytes_name)  # noqa: PTH102 a name that is no text
    assert (
        "\\udcff" in run_here("inspect", "--store", "tvm-ffi", tmp_path / "tvm-ffi", "--format", "json").out
    )
