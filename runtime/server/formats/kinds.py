"""How a checkpoint quantizes a matrix, and the format that a server of some kind makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from runtime.server.errors import Unsupported
from runtime.server.formats import eight_bits, four_bits, integers
from runtime.server.formats.plain import FP8_ONLINE, PLAIN, mxfp8_online
from runtime.server.formats.tensors import Change, Format, Padding
from runtime.server.laid_out import LAID_OUT_12, LaidOut

Name = Literal[
    "fp8",
    "int8",
    "mxfp8",
    "nvfp4",
    "nvfp4_packed",
    "nvfp4_beside_mxfp8",
    "mxfp4",
    "mxfp4_beside_fp8",
    "gptq",
    "awq",
    "packed",
    "w4afp8",
    "fp8_online",
    "mxfp4_online",
    "mxfp8_online",
]
_BLACKWELL = 10
_NO_ROOM = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_megamoe")
_TRTLLM = _NO_ROOM[:2]
_BY_DEEP_GEMM, _BY_DEEP_EP = ("auto", "deep_gemm"), ("deepep", "mooncake", "nixl")


@dataclass(frozen=True, slots=True)
class Kind:
    """`scale`: of blocks, under the checkpoint's name for it. `group` -1: a whole row."""

    name: Name
    per: Literal["tensor", "row", "block", "group"] = "group"
    block: tuple[int, int] = (128, 128)
    bits: int = 4
    group: int = 16
    symmetric: bool = True
    by_activation: bool = False
    whole_scales: bool = False
    is_static: bool = False
    one_input: bool = False
    scale: str = "weight_scale_inv"
    has_inputs: bool = True  # scales for what is multiplied: without, weights alone are quantized
    is_awq: bool = False
    widens: Literal["", "fp8", "modelopt"] = ""  # of one scale, by whose rules it becomes one a row
    linears_only: bool = False  # SGLang has no experts of it


def method_of(kind: Kind | None) -> str | None:
    """That runs the matrices of a ModelOpt's mixed checkpoint which are of this kind."""
    if kind is None:
        return None
    named = {"nvfp4": "modelopt_fp4", "fp8": "modelopt_fp8" if kind.per == "tensor" else "fp8"}
    return named.get(kind.name, kind.name)


def is_absorbed_in_fp8(kind: Kind | None) -> bool:
    """What latent attention makes of its matrix: of blocks of 128, and of what is not in fp8, a plain one."""
    if kind is None or kind.name not in ("fp8", "mxfp8"):
        return False
    return kind.name == "mxfp8" or kind.per != "block" or kind.block != (128, 128)


@dataclass(frozen=True, slots=True)
class Served:
    """What of a server decides how it lays weights out."""

    sm_major: int = 9
    moe_backend: str = "auto"
    a2a_backend: str = "none"
    is_gated: bool = True
    nvfp4_trtllm_rows: int = 64
    mxfp4_trtllm_rows: int = 128
    narrow_fp4_scales: bool = True
    fp8_gemm: str = "auto"
    fp4_gemm: str = ""
    fp8_by_flashinfer: tuple[int, ...] = ()  # majors on which ModelOpt's products are
    laid_out: LaidOut = LAID_OUT_12


def format_of(kind: Kind | None, served: Served) -> Format:
    made = _format(kind, served)
    if served.moe_backend in _TRTLLM and made.padding == Padding():
        return replace(made, padding=Padding(128))  # srt/layers/moe/fused_moe_triton/layer.py
    return made


def format_of_experts(kind: Kind | None, served: Served, hidden: int, inner: int) -> Format:
    """Of a rank's sizes: srt/.../marlin_utils.py's check_moe_marlin_supports_layer."""
    if kind is not None and kind.name == "awq" and (hidden % 128 or inner % max(64, kind.group)):
        return integers.wna16(kind.bits, max(kind.group, 32), hidden, inner)
    return format_of(kind, served)


def _format(kind: Kind | None, served: Served) -> Format:
    if kind is None:
        return PLAIN
    made: dict[str, Callable[[], Format]] = {
        "fp8": lambda: _eight_bits(kind, "float8_e4m3fn", served),
        "int8": lambda: _eight_bits(kind, "int8", served),
        "mxfp8": lambda: _mx(kind, served),
        "nvfp4": lambda: _nvfp4(kind, served),
        "nvfp4_packed": lambda: four_bits.nvfp4_packed(
            kind.has_inputs, served.fp4_gemm, served.sm_major >= _BLACKWELL
        ),
        "nvfp4_beside_mxfp8": lambda: four_bits.nvfp4_beside_mxfp8(served.sm_major < _BLACKWELL),
        "mxfp4": lambda: _mxfp4(served),
        "mxfp4_beside_fp8": lambda: _mxfp4_beside_fp8(served),
        "mxfp4_online": lambda: four_bits.MXFP4_BARE,
        "gptq": lambda: integers.gptq(kind.bits, kind.group, kind.by_activation),
        "awq": lambda: integers.awq(kind.bits, kind.group),
        "packed": lambda: integers.packed(
            *(kind.bits, kind.group, kind.symmetric, kind.by_activation, kind.whole_scales),
            by_trtllm=served.moe_backend in _TRTLLM,
        ),
        "w4afp8": lambda: integers.w4afp8(kind.group),
        "fp8_online": lambda: FP8_ONLINE,
        "mxfp8_online": lambda: mxfp8_online(_mx_scales(served), _packs_mx_experts(served)),
    }
    return made[kind.name]()


def _eight_bits(kind: Kind, dtype: str, served: Served) -> Format:
    if kind.per == "block":
        return eight_bits.in_blocks(kind.block, kind.scale, dtype, *_packs_scales(kind, dtype, served))
    if kind.per == "tensor":
        return eight_bits.per_tensor(kind.is_static, dtype, kind.one_input, _widens(kind, served))
    return eight_bits.per_row(dtype, kind.is_static, kind.one_input)


def _packs_scales(kind: Kind, dtype: str, served: Served) -> tuple[bool, bool]:
    """Of matrices and of experts: requant_block_scale_ue8m0_for_deepgemm of srt/.../fp8_utils.py."""
    if served.sm_major != _BLACKWELL or dtype == "int8" or kind.block != (128, 128):
        return False, False
    is_own = kind.scale == "weight_scale_inv"
    chosen = served.moe_backend == "auto" and served.a2a_backend in _BY_DEEP_EP
    matrices = (is_own or served.laid_out.packs_compressed) and served.fp8_gemm in _BY_DEEP_GEMM
    return matrices, is_own and (chosen or served.moe_backend == "deep_gemm")


def _widens(kind: Kind, served: Served) -> bool:
    """convert_to_channelwise of srt/.../fp8_utils.py, but where a kernel has one scale for all."""
    keeps = {"fp8": (12,), "modelopt": served.fp8_by_flashinfer}
    return bool(kind.widens) and served.sm_major not in keeps[kind.widens]


def _mx(kind: Kind, served: Served) -> Format:
    in_blocks = kind.per == "block" and served.sm_major < _BLACKWELL
    return eight_bits.mx(in_blocks, _mx_scales(served), _packs_mx_experts(served))


def _mx_scales(served: Served) -> tuple[Change, ...]:
    """_process_mxfp8_linear_weight_scale of srt/.../fp8.py"""
    if served.fp8_gemm not in served.laid_out.mxfp8_beside:
        return ()
    return eight_bits.mx_beside(served.fp8_gemm, served.laid_out.others_by_flashinfer)


def _packs_mx_experts(served: Served) -> bool:
    return served.moe_backend == "deep_gemm" and served.sm_major == _BLACKWELL


def _nvfp4(kind: Kind, served: Served) -> Format:
    """srt/.../modelopt_quant.py: without a gate, or as MegaMoE has them, TRT-LLM's are of 128 rows."""
    backend = served.moe_backend
    rows = served.nvfp4_trtllm_rows if served.is_gated and served.a2a_backend != "megamoe" else 128
    padding = Padding(rows) if backend in _TRTLLM else Padding()
    swizzles = backend not in _NO_ROOM
    made = four_bits.nvfp4(kind.group, kind.is_awq, swizzles, padding, served.is_gated)
    if backend == "marlin" or (backend == "auto" and served.sm_major < _BLACKWELL):
        made = four_bits.experts_by_marlin(made)
    if served.fp4_gemm == "marlin" or not kind.has_inputs:
        return four_bits.by_marlin(made, served.laid_out.pads_for_marlin)
    return four_bits.padded_for_trtllm(made) if served.fp4_gemm == "flashinfer_trtllm" else made


def _mxfp4(served: Served) -> Format:
    """srt/.../mxfp4.py and fused_moe_triton/layer.py, by backend and GPU."""
    backend, blackwell = served.moe_backend, served.sm_major == _BLACKWELL
    if backend == "marlin":
        return four_bits.mxfp4(Padding(128, 256))
    if backend == "deep_gemm" or served.a2a_backend == "megamoe":
        return four_bits.mxfp4(Padding())
    if backend == "flashinfer_mxfp4":
        return (
            four_bits.mxfp4(Padding(served.mxfp4_trtllm_rows, 256))
            if blackwell
            else four_bits.mxfp4(Padding(1, 256), Padding(128, 256))
        )
    if backend in ("triton_kernel", "auto"):
        return four_bits.mxfp4_for_triton_kernels()
    return four_bits.mxfp4_unpacked()


def _mxfp4_beside_fp8(served: Served) -> Format:
    """srt/layers/quantization/fp8.py, by backend and GPU."""
    backend, through = served.moe_backend, served.a2a_backend
    if backend != "flashinfer_mxfp4" or through in ("megamoe", "flashinfer_megamoe"):
        through = "" if through == "none" else f" behind {through}"
        raise Unsupported(
            f"how {backend}{through} lays out mxfp4 experts beside fp8 is not known here: "
            "--moe-runner-backend flashinfer_mxfp4 is"
        )
    if served.sm_major == _BLACKWELL:
        return four_bits.mxfp4_beside_fp8(False, Padding(128))
    return four_bits.mxfp4_beside_fp8(served.narrow_fp4_scales, Padding())
