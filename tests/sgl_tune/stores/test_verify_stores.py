"""What `verify` says of stores, and how `relocate` mends those that were moved."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.flashinfer.versions import NEWEST
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.stores import make

TARGET = {
    "metadata": {**dict.fromkeys(NEWEST.environment, "x"), "flashinfer_version": "0.7.3"},
    "arch": "sm90",
    "libraries": {"triton": make.TRITON, "tilelang": make.TILELANG, "python": "3.11"},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make.whole_root(tmp_path / "root")


_verify, _relocate = partial(told, "verify", code=None), partial(told, "relocate")


def _codes(data: dict[str, Any], store: str) -> list[str]:
    return [found["code"] for row in data["files"] if row["store"] == store for found in row["findings"]]


def _verdicts(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(row["store"], row["verdict"]) for row in data["files"]}


def _moved(root: Path, to: str = "moved") -> Path:
    """By a plain copy, with all times lost; the first place is gone."""
    place = root.with_name(to)
    shutil.copytree(root, place)
    shutil.rmtree(root)
    for path in place.rglob("*"):
        os.utime(path, (10**9, 10**9))
    return place


def test_a_root_in_its_place_is_found_but_for_what_ninja_does_not_know(root: Path) -> None:
    data = _verify(root, code=0)
    assert _verdicts(data) == {
        ("flashinfer-jit", "replaced"),
        *((store, "hit") for store in ("flashinfer-cubins", "tvm-ffi", "triton", "inductor", "deep-gemm")),
        *((store, "hit") for store in ("cute-dsl", "tilelang")),
    }
    assert data["verdict"].startswith("good: of 16 items in 10 stores, 15 found when asked for, 1 compiled")


def test_a_containers_variables_are_the_roots(root: Path) -> None:
    place = "/mnt/$(HOME)/a root"
    told = run_here("relocate", root, "--at", place, "--format", "kubernetes")
    block = yaml.safe_load(told.out)["env"]
    data = _relocate(root, "--at", place)["environment"]
    assert {one["name"]: one["value"].replace("$$(", "$(") for one in block} == data
    assert all("$$(" in one["value"] for one in block if place in one["value"].replace("$$(", "$("))


def test_a_moved_root_is_bad_and_relocate_mends_it(root: Path) -> None:
    moved = _moved(root)
    data = _verify(moved, code=1)
    assert _codes(data, "triton") == ["store-moved"] * 2 and _codes(data, "flashinfer-jit") == ["store-moved"]
    told = _relocate(moved)
    assert {row["store"]: row["changed"] for row in told["stores"]} == {
        "flashinfer-jit": 1, "cute-dsl": 0, "inductor": 0, "tilelang": 0, "triton": 2,
    }  # fmt: skip
    assert told["environment"]["PYTHONPATH"] == f"{moved}/flashinfer-aot"
    after = _verify(moved, code=0)
    assert {verdict for _, verdict in _verdicts(after)} == {"hit"}
    assert any(found["code"] == "store-offered" for found in after["findings"])
    again = _relocate(moved)
    assert sum(row["changed"] for row in again["stores"]) == 0


def test_a_root_is_made_right_for_a_path_that_is_not_here(root: Path) -> None:
    _relocate(root, "--at", "/mnt/root")
    assert _codes(_verify(root, "--at", "/mnt/root", code=0), "triton") == []
    assert _codes(_verify(root, code=1), "triton") == ["store-moved"] * 2
    groups = list((root / "triton").glob("*/__grp__*"))
    paths = {path for group in groups for path in json.loads(group.read_text())["child_paths"].values()}
    assert all(path.startswith("/mnt/root/triton/") for path in paths)


def test_what_another_machine_never_looks_at_is_ignored(root: Path, tmp_path: Path) -> None:
    target = make.write(tmp_path / "env.json", TARGET)
    good = _verify(root, "--target", target, "--store", "triton", code=0)
    assert {row["verdict"] for row in good["files"]} == {"hit"}
    other = {**TARGET, "arch": "sm100", "libraries": {"tilelang": "0.2", "python": "3.12"}}
    data = _verify(root, "--target", make.write(target, other), "--store", "all", code=0)
    assert _codes(data, "triton").count("store-other-arch") == 2
    assert _codes(data, "triton").count("store-other-python") == 1
    assert _codes(data, "tilelang") == ["store-other-version"]
    assert _codes(data, "flashinfer-jit") == ["store-other-version"]
    for store in ("tvm-ffi", "deep-gemm"):
        assert _codes(data, store) == ["store-other-arch"]


@pytest.mark.parametrize(
    ("store", "file", "content", "verdict"),
    [
        ("triton", "triton/*/__grp__kernel_0.json", b"{", "replaced"),
        ("triton", "triton/*/__grp__kernel_0.json", b"{}", "replaced"),
        ("triton", "triton/*/__grp__kernel_0.json", b"[]", "crash"),
        ("triton", "triton/*/__grp__kernel_0.json", b'{"child_paths": []}', "crash"),
        ("triton", "triton/*/__grp__kernel_0.json", b'{"child_paths": {"kernel_0.json": 3}}', "crash"),
        ("triton", "triton/*/kernel_0.json", b"", "crash"),
        ("triton", "triton/*/kernel_0.cubin", b"", "crash"),
        ("triton", "triton/*/kernel_0.ttir", None, "replaced"),
        ("deep-gemm", "deep_gemm/cache/*/.committed", None, "replaced"),
        ("deep-gemm", "deep_gemm/cache/*/kernel.cubin", b"", "crash"),
        ("tvm-ffi", "jit/*/*/*/*/sgl_deps.json", b'[["kernels", "x", "y"]]', "replaced"),
        ("tvm-ffi", "jit/*/*/*/*/sgl_deps.json", b"[1]", "replaced"),
        ("tvm-ffi", "jit/*/*/*/*/*.so", b"", "crash"),
        ("tvm-ffi", "jit/*/*/*/*/*.so", make.LIBRARY[:100], "crash"),
        ("cute-dsl", "cute_aot/*/fwd/*.o", b"", "replaced"),
        ("tilelang", "tilelang/*/*/kernels/*/params.json", b"[[]]", "replaced"),
        ("tilelang", "tilelang/*/*/kernels/*/kernel_lib.so", None, "replaced"),
        ("inductor", "inductor/fxgraph/*/*/*", b"", "replaced"),
        ("flashinfer-jit", ".cache/flashinfer/*/*/cached_ops/norm/norm.so", make.LIBRARY[:90], "crash"),
        ("flashinfer-jit", ".cache/flashinfer/*/*/cached_ops/norm/norm.so", None, "replaced"),
        ("flashinfer-cubins", ".cache/flashinfer/cubins/*/*/*.cubin", b"", "replaced"),
    ],
)
def test_damage_is_told_early(root: Path, store: str, file: str, content: bytes | None, verdict: str) -> None:
    path = next(root.glob(file))
    path.unlink() if content is None else path.write_bytes(content)
    data = _verify("--store", store, root)
    assert verdict in {row["verdict"] for row in data["files"]}
    assert all(row["findings"] for row in data["files"] if row["verdict"] != "hit")


def test_another_user_is_told_what_he_cannot_read(root: Path) -> None:
    kernel = next((root / "triton").glob("*/kernel_0.json")).parent
    kernel.chmod(0o700)
    data = _verify("--store", "triton", root, "--as-user", "4321", code=1)
    assert _codes(data, "triton").count("not-readable") == len(data["files"])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Which others may look into: pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_read_only_place_needs_locks_and_has_them_after_relocate(open_folder: Path) -> None:
    make.cute_object(open_folder / "cute_aot", lock=False)
    make.gemm(open_folder / "deep_gemm")
    data = _verify(open_folder, "--as-user", "4321", code=1)
    assert _codes(data, "cute-dsl") == ["store-kills-start"]
    assert [found["code"] for found in data["findings"]] == ["target-unknown", "store-not-writable"]
    _relocate(open_folder)
    data = _verify("--store", "cute-dsl", open_folder, "--as-user", "4321", code=0)
    assert {row["verdict"] for row in data["files"]} == {"hit"}


def test_a_file_that_another_user_cannot_read_is_told(open_folder: Path) -> None:
    open_kernel = make.triton_kernel(open_folder / "triton", "open")
    closed = make.triton_kernel(open_folder / "triton", "closed")
    (closed / "closed.cubin").chmod(0o600)
    data = _verify("--store", "triton", open_folder, "--as-user", "4321", code=1)
    told = {row["path"]: row["verdict"] for row in data["files"]}
    assert told == {str(open_kernel): "hit", str(closed): "crash"}
    assert _codes(data, "triton") == ["not-readable"]


def test_flashinfer_is_given_another_folder_where_it_may_not_write(open_folder: Path) -> None:
    make.flashinfer_module(open_folder / ".cache/flashinfer", "norm")
    told = _relocate(open_folder, "--scratch", "/scratch", "--sglang-version", "0.5.17")
    assert told["environment"]["FLASHINFER_WORKSPACE_BASE"] == "/scratch"
    assert told["environment"]["PYTHONPATH"] == f"{open_folder}/flashinfer-aot"
    data = _verify(open_folder, "--as-user", "4321", code=0)
    assert {row["verdict"] for row in data["files"]} == {"hit"}
    said = [found["message"] for found in data["findings"] if found["code"] == "store-not-writable"]
    assert len(said) == 1 and "FlashInfer writes a log" in said[0]


def test_a_scratch_folder_is_named_as_the_server_sees_it(root: Path) -> None:
    assert not run_here("relocate", root, "--scratch", "/var/x").err
    assert run_here("relocate", root, "--scratch", "x").ends(2, "absolute")


def test_what_cannot_be_mended_is_said_and_left(root: Path) -> None:
    next((root / "triton").glob("*/kernel_0.ttir")).unlink()
    group = next((root / "triton").glob("*/__grp__kernel_0.json"))
    before = group.read_bytes()
    ran = run_here("relocate", root, "--at", "/x")
    assert ran.code == 0 and "kernel_0.ttir is missing" in ran.err and group.read_bytes() == before


def test_links_are_never_written_through(root: Path, tmp_path: Path) -> None:
    outside = make.triton_kernel(tmp_path / "outside", "far")
    before = {path: path.read_bytes() for path in outside.iterdir()}
    (root / "triton" / outside.name).symlink_to(outside)
    group = next((root / "triton").glob("*/__grp__kernel_0.json"))
    inside = group.rename(tmp_path / "group.json")
    group.symlink_to(inside)
    _relocate(root, "--at", "/x")
    assert before == {path: path.read_bytes() for path in outside.iterdir()}
    assert "/x/" not in inside.read_text() and group.is_symlink()


def test_relocate_refuses_a_missing_folder_and_a_relative_path(tmp_path: Path) -> None:
    assert run_here("relocate", tmp_path / "none").code == 2
    assert run_here("relocate", tmp_path, "--at", "mnt").ends(2, "--at mnt is no absolute path")
    assert "No store here needs it." in run_here("relocate", tmp_path).out
