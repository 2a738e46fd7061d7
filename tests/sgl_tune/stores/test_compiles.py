"""What a start's record asks for is counted against its stores, as the libraries look them up."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from runtime.record.events import record_of
from runtime.record.parts import Asked
from runtime.record.record import Record
from sgl_tune.verify.by_server import Compiles, compiles
from tests.sgl_tune.running import run_here
from tests.sgl_tune.stores import make

KERNELS = ("fused", "gated")
OWN = "sgl_kernel_jit_rope_true"
GEMM = f"sm90_gemm.{hashlib.sha256(b'sm90_gemm').hexdigest()[:32]}"


def _record(release: str, *more: dict[str, object]) -> Record:
    def module(library: str, name: str) -> dict[str, object]:
        gone = {"path": f"/nowhere/{name}.so", "state": "stub", "digest": ""}
        return {"event": "module", "library": library, "name": name, **gone}

    digests = {one: hashlib.sha256(one.encode()).hexdigest() for one in KERNELS}
    kernels = [
        {"event": "kernel", "library": "triton", "name": f"ops.{one}", "digest": digest}
        for one, digest in digests.items()
    ]
    modules = [module("flashinfer", "norm"), module("flashinfer", "fused_moe_90"), module("sglang", OWN)]
    versions = {"sglang": release, "flashinfer-python": make.FLASHINFER}
    asked = Asked((), 0, "h200", "ghost", "3.12.1", "13.0", versions)
    return record_of(asked, [*kernels, *modules, *more, {"event": "ended", "code": 0, "cpu": 1, "rss": 1}])


def _found(root: Path, release: str = "0.5.23", *more: dict[str, object], arch: str = "sm90a") -> Compiles:
    return compiles([_record(release, *more)], root, arch, {})


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in KERNELS:
        make.triton_kernel(root / "triton", name)
    for name in ("norm", "fused_moe_90"):
        make.flashinfer_module(root / ".cache/flashinfer", name)
    make.sglang_leaf(root / "jit", OWN)
    return root


def test_an_empty_root_lacks_all_and_a_fused_moe_is_named(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    found = _found(tmp_path)
    assert found.missing == {
        "triton": ("ops.fused", "ops.gated"),
        "flashinfer-jit": ("norm", "fused_moe_90"),
        "tvm-ffi": (OWN,),
    }
    assert (found.asked, found.number, found.seconds) == (5, 5, 2 * 0.6 + 28 + 5)
    assert found.says == "it would compile 5 of 5 kernels, about 34 s and many minutes for fused_moe_90"


def test_a_root_is_whole_once_a_package_offers_flashinfers_modules(whole: Path) -> None:
    assert _found(whole).missing == {"flashinfer-jit": ("norm", "fused_moe_90")}
    assert run_here("relocate", whole).code == 0
    found = _found(whole)
    assert not found.missing and found.says == "it would compile none of its 5 kernels"


def test_a_root_of_0517_has_its_own_kernels_under_their_names(whole: Path) -> None:
    shutil.rmtree(whole / "jit")
    make.write(whole / f"tvm-ffi/{OWN}__arch_9.0a__tvmffi_0.1/{OWN}.so", make.LIBRARY)
    assert "tvm-ffi" in _found(whole).missing and "tvm-ffi" not in _found(whole, "0.5.17").missing


def test_what_moved_is_compiled_again(whole: Path) -> None:
    moved = whole.rename(whole.with_name("moved"))
    assert _found(moved).missing["triton"] == ("ops.fused", "ops.gated")


def test_what_is_for_another_gpu_or_release_is_not_there(whole: Path) -> None:
    assert run_here("relocate", whole).code == 0
    assert set(_found(whole, arch="sm100a").missing) == {"triton", "flashinfer-jit", "tvm-ffi"}
    store = whole / ".cache/flashinfer"
    (store / make.FLASHINFER).rename(store / "0.7.4")
    assert set(_found(whole).missing) == {"flashinfer-jit"}


def test_an_empty_file_is_no_kernel(whole: Path) -> None:
    os.truncate(next((whole / "triton").glob("*/fused.cubin")), 0)
    assert _found(whole).missing["triton"] == ("ops.fused",)


def test_kernels_of_cute_are_found_unknown_or_never_kept(whole: Path) -> None:
    module = whole / ".cache/flashinfer" / make.FLASHINFER / "90a/cached_ops/mm_fp4_sm90a_cute_dsl"
    make.write(module / "t128.o", make.LIBRARY)
    make.write(module / "meta.json", {"cute_dsl_version": "4.2"})
    names = ("mm_fp4.t128", "mm_fp4.t256", "flashinfer.norm.kernels.rmsnorm.RMSNorm", "sglang.ops.Wrapper")
    found = _found(whole, "0.5.23", *({"event": "kernel", "library": "cute", "name": name} for name in names))
    assert found.missing["cute"] == names[1:3] and found.unknown == names[3:]
    assert found.says.endswith("; not known for 1")


def test_kernels_of_deep_gemm_are_counted(whole: Path) -> None:
    asked = {"event": "kernel", "library": "deep-gemm", "name": GEMM}
    assert _found(whole, "0.5.23", asked).missing["deep-gemm"] == (GEMM,)
    make.gemm(whole / "deep_gemm", "sm90_gemm")
    assert "deep-gemm" not in _found(whole, "0.5.23", asked).missing
