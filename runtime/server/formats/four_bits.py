"""Four bits a weight in floating point: nvfp4 and mxfp4. layers/quantization: modelopt_quant.py, mxfp4.py,
compressed_tensors/schemes/*nvfp4*.py."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.formats.tensors import (
    ALL_EXPERTS,
    COLUMNS,
    EXPERTS,
    MODEL,
    PARTS,
    ROWS,
    Change,
    Cut,
    Dim,
    Format,
    Padding,
    Stored,
)

_NONE = Padding()
_HALVES = Dim("columns", per=2)
_E4M3, _BYTE, _SCALE = "float8_e4m3fn", "uint8", "float32"
_GROUPS_OF_16 = Cut(columns=16, always=True, what="nvfp4's groups")
# modelopt_quant.py asserts that gate and up need no padding; compressed_tensors_w4a16_nvfp4_moe.py.
_WHOLE_TILES = Cut(whole_rows=128, what="nvfp4's tiles")
_OF_MARLIN = Cut(columns=64, always=True, whole_rows=128, what="Marlin's tiles")
_OF_TRTLLM = replace(_OF_MARLIN, what="TRT-LLM's tiles")
# As CUTLASS's kernels read block scales.
_SWIZZLED = (Dim("rows", to=128), Dim("columns", per=16, to=64))


def nvfp4(
    group: int, is_awq: bool, swizzles: bool, padding: Padding = _NONE, is_gated: bool = True
) -> Format:
    """`swizzles`: the experts' scales get room to be laid out for CUTLASS; TRT-LLM's kernels, which pad, read
    them where they are."""
    groups = Dim("columns", per=group)
    scales = Stored("weight_scale", _E4M3, (ROWS, groups))
    expert = Stored("weight", _BYTE, (EXPERTS, ROWS, _HALVES))
    expert_scales = Stored("weight_scale", _E4M3, (EXPERTS, ROWS, groups))
    room = Stored("blockscale_swizzled", _E4M3, (EXPERTS, *_SWIZZLED), in_file=False)
    pre_scale = (Stored("pre_quant_scale", MODEL, (COLUMNS,)),) if is_awq else ()
    return Format(
        "nvfp4",
        (
            Stored("weight", _BYTE, (ROWS, _HALVES)),
            Stored("input_scale", _SCALE, (PARTS,)),
            *pre_scale,
            Stored("weight_scale_2", _SCALE, (PARTS,)),
            scales,
        ),
        (
            expert,
            expert_scales,
            *((room,) if swizzles else ()),
            Stored("weight_scale_2", _SCALE, (EXPERTS, PARTS)),
            Stored("input_scale", _SCALE, (ALL_EXPERTS, PARTS)),
        ),
        _GROUPS_OF_16,
        _GROUPS_OF_16,
        experts_laid_cut=_WHOLE_TILES if swizzles and is_gated else Cut(),
        after_linear=(Change("copied", Stored("weight_scale", _E4M3, _SWIZZLED)),),
        after_experts=(
            _swizzled(expert_scales, room, is_gated)
            if swizzles
            else (Change("copied", expert, lists=True), Change("copied", expert_scales, lists=True))
        ),
        padding=padding,
    )


def _swizzled(scales: Stored, room: Stored, is_gated: bool) -> tuple[Change, ...]:
    """Those without gates are padded to the tiles that their scales are laid out in; of gates that ends."""
    tile = Dim("columns", per=2, to=128)
    weight = Stored("weight", _BYTE, (EXPERTS, Dim("rows", to=128), tile))
    wider = Stored("weight_scale", _E4M3, (EXPERTS, ROWS, replace(tile, per=16)))
    padded = Change("replaced", weight, of="broken"), Change("replaced", wider, of="broken")
    kept = Change("copied", scales, of="all" if is_gated else "whole")
    return (kept, *(() if is_gated else padded), Change("dropped", room, of="swizzled"))


_MARLIN = (64, 128), (128, 64)


def by_marlin(made: Format, pads: bool = True) -> Format:
    """prepare_nvfp4_layer_for_marlin of marlin_utils_fp4.py lays both tensors out anew."""
    kept = tuple(one for one in made.linear if one.name in ("weight", "weight_packed", "weight_scale"))
    laid_out = tuple(Change("replaced", one, tiles=_MARLIN) for one in kept)
    cut = Cut() if pads else Cut(whole_rows=64, what="Marlin's tiles")
    return replace(made, laid_cut=cut, after_linear=laid_out)


def experts_by_marlin(made: Format, cut: Cut = Cut()) -> Format:
    """Their room for CUTLASS's scales stays, and nobody uses it."""
    kept = tuple(one for one in made.experts if one.name in ("weight", "weight_packed", "weight_scale"))
    laid_out = tuple(Change("replaced", one) for one in kept)
    return replace(made, experts_laid_cut=cut, after_experts=laid_out)


def padded_for_trtllm(made: Format) -> Format:
    """The weights, too, to what the scales are."""
    padded = Stored("weight", _BYTE, (Dim("rows", to=128), Dim("columns", per=2, to=64)))
    return replace(made, after_linear=(Change("replaced", padded), *made.after_linear))


def nvfp4_packed(has_inputs: bool, gemm: str, has_fp4: bool) -> Format:
    """By compressed-tensors, which names and orders them otherwise. `has_fp4`: the GPU, else Marlin's kernels
    multiply."""
    groups = Dim("columns", per=16)
    inputs = Stored("input_global_scale", _SCALE, (PARTS,))
    expert_inputs = Stored("input_global_scale", _SCALE, (EXPERTS, PARTS))
    swizzled = Change("replaced", Stored("weight_scale", _E4M3, _SWIZZLED))
    of_experts = Change("replaced", Stored("weight_scale", _E4M3, (EXPERTS, *_SWIZZLED)))
    made = Format(
        "nvfp4, packed",
        (
            Stored("weight_packed", _BYTE, (ROWS, _HALVES)),
            Stored("weight_global_scale", _SCALE, (PARTS,)),
            Stored("weight_scale", _E4M3, (ROWS, groups)),
            *((inputs,) if has_inputs else ()),
        ),
        (
            Stored("weight_packed", _BYTE, (EXPERTS, ROWS, _HALVES)),
            Stored("weight_scale", _E4M3, (EXPERTS, ROWS, groups)),
            Stored("weight_global_scale", _SCALE, (EXPERTS, PARTS)),
            *((expert_inputs,) if has_inputs else ()),
        ),
        _GROUPS_OF_16,
        _GROUPS_OF_16,
        laid_cut=_OF_TRTLLM if gemm == "flashinfer_trtllm" else Cut(),
        after_linear=(swizzled,),
        after_experts=(of_experts,),
    )
    made = made if has_fp4 else experts_by_marlin(made, _OF_MARLIN)
    return made if has_fp4 and has_inputs else by_marlin(made)


def nvfp4_beside_mxfp8(by_marlin: bool) -> Format:
    """MiniMax-M3.1's experts, which are packed so: minimax_m3_nvfp4.py, for Marlin marlin_utils_fp4.py; else
    for TRT-LLM's kernels."""
    made = nvfp4_packed(has_inputs=True, gemm="", has_fp4=True)
    laid_out = tuple(Change("copied", one, lists=True) for one in made.experts[:2])
    own = Stored("weight_scale_2", MODEL if by_marlin else _SCALE, (EXPERTS,), in_file=False)
    return replace(made, name="nvfp4 beside mxfp8", after_experts=(*laid_out, Change("added", own)))


_MXFP4 = (
    Stored("weight", _BYTE, (EXPERTS, ROWS, _HALVES)),
    Stored("weight_scale", _BYTE, (EXPERTS, ROWS, Dim("columns", per=32))),
    Stored("bias", "bfloat16", (EXPERTS, ROWS)),
)


def mxfp4(padding: Padding, later: Padding | None = None) -> Format:
    """Of experts alone, which have biases whether the model has some or not."""
    relaid = tuple(Change("copied" if later is None else "replaced", one) for one in _MXFP4)
    return Format("mxfp4", (), _MXFP4, after_experts=relaid, padding=padding, later=later)


_INVERSE = Stored("weight_scale_inv", _BYTE, (EXPERTS, ROWS, Dim("columns", per=32)))


def mxfp4_beside_fp8(is_narrow: bool, later: Padding) -> Format:
    """DeepSeek-V4's, on FlashInfer's kernels: mxfp4_flashinfer_cutlass_moe.py and
    mxfp4_flashinfer_trtllm_moe.py. Scales that are not `is_narrow` are wide until they are laid out."""
    weight, tile = _MXFP4[0], Cut(rows=128, columns=128, always=True, what="the kernels' tiles")
    scale = _INVERSE if is_narrow else Stored("weight_scale_inv", _SCALE, _INVERSE.dims)
    after = tuple(Change("replaced", one) for one in (weight, _INVERSE))
    cut = tile if later == _NONE else Cut()
    return Format("mxfp4", (), (weight, scale), experts_cut=cut, after_experts=after, later=later)


MXFP4_BARE = Format("mxfp4", (), _MXFP4[:2])
_FOR_TRITON = Padding(64)


def mxfp4_for_triton_kernels() -> Format:
    """Their biases are in fp32."""
    weight, scale, bias = _MXFP4
    wide = Stored("bias", _SCALE, bias.dims)
    changes = (Change("replaced", wide), Change("replaced", weight), Change("replaced", scale))
    return Format("mxfp4", (), _MXFP4, after_experts=changes, padding=_FOR_TRITON)


def mxfp4_unpacked() -> Format:
    """Kernels without four bits run them in the model's dtype."""
    _, scale, _ = _MXFP4
    plain = Stored("weight", "bfloat16", (EXPERTS, ROWS, COLUMNS))
    changes = (Change("replaced", plain), Change("dropped", scale))
    return Format("mxfp4, unpacked", (), _MXFP4, after_experts=changes, padding=_FOR_TRITON)
