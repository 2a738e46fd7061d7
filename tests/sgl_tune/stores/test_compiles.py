"""What a start's record asks for is counted against its stores, by the names that the libraries look up."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from runtime.record.events import record_of
from runtime.record.parts import Asked
from runtime.record.record import Record
from sgl_tune.stores.compiles import compiles

DIGESTS = ("ab" * 32, "cd" * 32)
OWN = "sgl_kernel_jit_rope_true"


def _record(release: str, *more: dict[str, object]) -> Record:
    def module(library: str, name: str) -> dict[str, object]:
        gone = {"path": f"/nowhere/{name}.so", "state": "stub", "digest": ""}
        return {"event": "module", "library": library, "name": name, **gone}

    kernels = [
        {"event": "kernel", "library": "triton", "name": "ops.fused", "digest": one} for one in DIGESTS
    ]
    modules = [module("flashinfer", "norm"), module("flashinfer", "fused_moe_90"), module("sglang", OWN)]
    asked = Asked((), 0, "h200", "ghost", "3.12", "13.0", {"sglang": release})
    return record_of(asked, [*kernels, *modules, *more, {"event": "ended", "code": 0, "cpu": 1, "rss": 1}])


def _made(path: Path, data: bytes = b"code") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _triton(root: Path, digest: str) -> Path:
    return root / "triton" / base64.b32encode(bytes.fromhex(digest)).decode().rstrip("=") / "fused.cubin"


def test_an_empty_root_lacks_all_and_a_fused_moe_is_named(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    found = compiles([_record("0.5.17")], tmp_path, {})
    assert found.missing == {
        "triton": ("ops.fused", "ops.fused"),
        "flashinfer-jit": ("norm", "fused_moe_90"),
        "tvm-ffi": (OWN,),
    }
    assert (found.asked, found.number, found.seconds) == (5, 5, 2 * 0.25 + 25 + 8.5)
    assert found.says == "it would compile 5 of 5 kernels, about 34 s and many minutes for fused_moe_90"


@pytest.mark.parametrize(
    ("release", "own"),
    [
        ("0.5.17", f"tvm-ffi/{OWN}__arch_9.0a__tvmffi_0.1/{OWN}.so"),
        ("0.5.23", f"jit/sm90a/{OWN}/build-1/deps-2/{OWN}.so"),
    ],
)
def test_a_whole_root_lacks_nothing(tmp_path: Path, release: str, own: str) -> None:
    for digest in DIGESTS:
        _made(_triton(tmp_path, digest))
    for name in ("norm", "fused_moe_90"):
        _made(tmp_path / f".cache/flashinfer/0.7.2/90a/cached_ops/{name}/{name}.so")
    _made(tmp_path / own)
    found = compiles([_record(release)], tmp_path, {})
    assert not found.missing and found.says == "it would compile none of its 5 kernels"


def test_an_empty_file_is_no_kernel(tmp_path: Path) -> None:
    _made(_triton(tmp_path, DIGESTS[0]), b"")
    _made(_triton(tmp_path, DIGESTS[1]))
    assert compiles([_record("0.5.17")], tmp_path, {}).missing["triton"] == ("ops.fused",)


def test_kernels_of_cute_are_found_unknown_or_never_kept(tmp_path: Path) -> None:
    _made(tmp_path / ".cache/flashinfer/0.7.2/100a/cached_ops/mm_fp4_sm100a_cute_dsl/t128.o")
    names = (
        "mm_fp4.t128",
        "mm_fp4.t256",
        "flashinfer.norm.kernels.rmsnorm.RMSNorm",
        "sglang.ops.gemm.Wrapper",
    )
    told = [{"event": "kernel", "library": "cute", "name": name} for name in names]
    found = compiles([_record("0.5.23", *told)], tmp_path, {})
    assert found.missing["cute"] == names[1:3] and found.unknown == names[3:]
