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
# As CUTLASS's kernels read block scales.
_SWIZZLED = (Dim("rows", to=128), Dim("columns", per=16, to=64))


def nvfp4(group: int, is_awq: bool, swizzles: bool, padding: Padding = _NONE) -> Format:
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
        after_linear=(Change("copied", Stored("weight_scale", _E4M3, _SWIZZLED)),),
        after_experts=(
            (Change("copied", expert_scales), Change("dropped", room))
            if swizzles
            else (Change("copied", expert, lists=True), Change("copied", expert_scales, lists=True))
        ),
        padding=padding,
    )


def by_marlin(made: Format) -> Format:
    """Of weights alone: ModelOptNvFp4A16LinearMethod lays both tensors out anew, as large as before."""
    kept = tuple(one for one in made.linear if one.name in ("weight", "weight_scale"))
    return replace(made, after_linear=tuple(Change("replaced", one) for one in kept))


def nvfp4_packed(has_inputs: bool) -> Format:
    """By compressed-tensors, which names and orders them otherwise."""
    groups = Dim("columns", per=16)
    inputs = Stored("input_global_scale", _SCALE, (PARTS,))
    expert_inputs = Stored("input_global_scale", _SCALE, (EXPERTS, PARTS))
    swizzled = Change("replaced", Stored("weight_scale", _E4M3, _SWIZZLED))
    of_experts = Change("replaced", Stored("weight_scale", _E4M3, (EXPERTS, *_SWIZZLED)))
    return Format(
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
        after_linear=(swizzled,),
        after_experts=(of_experts,),
    )


def nvfp4_beside_mxfp8(by_marlin: bool) -> Format:
    """MiniMax-M3.1's experts, which are packed so: minimax_m3_nvfp4.py, for Marlin marlin_utils_fp4.py; else
    for TRT-LLM's kernels."""
    made = nvfp4_packed(has_inputs=True)
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
