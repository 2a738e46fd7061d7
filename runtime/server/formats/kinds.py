"""How a checkpoint quantizes a matrix, and the format that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.server.formats.tensors import COLUMNS, EXPERTS, MODEL, PARTS, ROWS, Dim, Format, Padding, Stored

_FP8, _BYTE, _SCALE = "float8_e4m3fn", "uint8", "float32"
_BLACKWELL = 10
_TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed")


@dataclass(frozen=True, slots=True)
class Kind:
    """`per`: what has a scale of its own. A static one has a scale for what is multiplied, too."""

    name: Literal["fp8", "nvfp4", "mxfp4"]
    per: Literal["tensor", "block", "group"] = "group"
    block: tuple[int, int] = (128, 128)
    group: int = 16
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """What of a server decides how it lays experts out."""

    sm_major: int = 9
    moe_backend: str = "auto"
    is_gated: bool = True


def format_of(kind: Kind | None, served: Served) -> Format:
    if kind is None:
        return PLAIN
    if kind.name == "fp8":
        return _in_blocks(kind.block) if kind.per == "block" else _per_tensor(kind.is_static)
    return _nvfp4(kind.group, served) if kind.name == "nvfp4" else _mxfp4(served)


PLAIN = Format(
    "plain", (Stored("weight", MODEL, (ROWS, COLUMNS)),), (Stored("weight", MODEL, (EXPERTS, ROWS, COLUMNS)),)
)


def _in_blocks(block: tuple[int, int]) -> Format:
    rows, columns = block
    scales = Dim("columns", per=columns)
    return Format(
        "blocks",
        (
            Stored("weight", _FP8, (ROWS, COLUMNS)),
            Stored("weight_scale_inv", _SCALE, (Dim("rows", per=rows), scales)),
        ),
        (
            Stored("weight", _FP8, (EXPERTS, ROWS, COLUMNS)),
            Stored("weight_scale_inv", _SCALE, (EXPERTS, Dim("rows", per=rows, each=True), scales)),
        ),
        cuts=(rows, columns),
    )


def _per_tensor(is_static: bool) -> Format:
    dense = Stored("weight", _FP8, (ROWS, COLUMNS)), Stored("weight_scale", _SCALE, (PARTS,))
    experts = (
        Stored("weight", _FP8, (EXPERTS, ROWS, COLUMNS)),
        Stored("weight_scale", _SCALE, (EXPERTS, PARTS)),
    )
    if not is_static:
        return Format("tensors", dense, experts)
    inputs = Stored("input_scale", _SCALE, (PARTS,)), Stored("input_scale", _SCALE, (EXPERTS,))
    return Format("tensors", (*dense, inputs[0]), (*experts, inputs[1]))


def _nvfp4(group: int, served: Served) -> Format:
    """Two values a byte, a scale in fp8 for each group, and one for all."""
    halves, groups = Dim("columns", per=2), Dim("columns", per=group)
    padding = Padding(64 if served.is_gated else 128) if served.moe_backend in _TRTLLM else Padding()
    return Format(
        "nvfp4",
        (
            Stored("weight", _BYTE, (ROWS, halves)),
            Stored("weight_scale", _FP8, (ROWS, groups)),
            Stored("weight_scale_2", _SCALE, (PARTS,)),
            Stored("input_scale", _SCALE, (PARTS,)),
        ),
        (
            Stored("weight", _BYTE, (EXPERTS, ROWS, halves)),
            Stored("weight_scale", _FP8, (EXPERTS, ROWS, groups)),
            Stored("weight_scale_2", _SCALE, (EXPERTS, PARTS)),
            Stored("input_scale", _SCALE, (EXPERTS, PARTS)),
        ),
        cuts=(1, group),
        padding=padding,
    )


def _mxfp4(served: Served) -> Format:
    """Of gpt-oss's experts alone: a scale, a power of two, for 32 values."""
    halves, groups = Dim("columns", per=2), Dim("columns", per=32)
    padding = Padding(64)
    if served.moe_backend == "flashinfer_mxfp4":
        padding = Padding(128, 256) if served.sm_major == _BLACKWELL else Padding(1, 256)
    return Format(
        "mxfp4",
        (),
        (
            Stored("weight", _BYTE, (EXPERTS, ROWS, halves)),
            Stored("weight_scale", _BYTE, (EXPERTS, ROWS, groups)),
            Stored("bias", MODEL, (EXPERTS, ROWS)),
        ),
        padding=padding,
    )
