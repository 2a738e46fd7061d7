"""A byte a weight: fp8 and int8, with a scale a block, a row or a matrix.

layers/quantization: fp8.py, modelopt_quant.py, w8a8_fp8.py, w8a8_int8.py, blockwise_int8.py,
compressed_tensors/schemes/*w8a8*.py.
"""

from __future__ import annotations

from runtime.server.formats.tensors import (
    COLUMNS,
    EXPERTS,
    ONE,
    PARTS,
    ROWS,
    Change,
    Cut,
    Dim,
    Format,
    Stored,
)

_FP8 = "float8_e4m3fn"
_SCALES = "float32"
_BLOCKS = Dim("rows", per=128), Dim("columns", per=128)
_TO_BLOCKS = (
    Change("replaced", Stored("weight", _FP8, (ROWS, COLUMNS))),
    Change("replaced", Stored("weight_scale_inv", _SCALES, _BLOCKS)),
)


def in_blocks(block: tuple[int, int], scale: str, dtype: str, packs: bool, packs_experts: bool) -> Format:
    """`packs`: DeepGEMM's scales of Blackwell are powers of two, four in an int32, of each row."""
    rows, columns = block
    blocks, each = Dim("rows", per=rows), Dim("rows", per=rows, each=True)
    scales = Dim("columns", per=columns)
    of_fp8 = scale == "weight_scale_inv"  # fp8.py; else validate_fp8_block_shape of fp8_utils.py
    cut = Cut(rows, columns, of_parts=True, waived=of_fp8, last_is_free=not of_fp8)
    weight = Stored("weight", dtype, (ROWS, COLUMNS))
    words = Dim("rows", to=4), Dim("columns", per=4 * columns)
    packed, of_experts = Stored(scale, "int32", words), Stored(scale, "int32", (EXPERTS, *words))
    expert = Stored("weight", dtype, (EXPERTS, ROWS, COLUMNS))
    whole = Stored("weight", dtype, (Dim("rows", to=rows), Dim("columns", to=columns)))
    relaid = tuple(Change("replaced", one, of="taken") for one in (whole, packed))
    experts_relaid = tuple(Change("replaced", one, of="taken") for one in (expert, of_experts))
    return Format(
        "blocks",
        (weight, Stored(scale, _SCALES, (blocks, scales))),
        (expert, Stored(scale, _SCALES, (EXPERTS, each, scales))),
        cut,
        Cut(rows, columns, of_parts=True, waived=of_fp8),
        after_linear=relaid if packs else (),
        after_experts=experts_relaid if packs_experts else (),
    )


_WORDS = Dim("rows", to=4), Dim("columns", per=128)
MX_WORDS = Change("replaced", Stored("weight_scale_inv", "int32", (EXPERTS, *_WORDS)))


def mx_beside(backend: str, others_by_flashinfer: bool) -> tuple[Change, ...]:
    """A copy of the scales as the kernels of a GEMM backend read them. `others_by_flashinfer`: of matrices
    that DeepGEMM does not take there is one more."""
    tiles, groups = Dim("rows", to=128), Dim("columns", per=32)
    swizzled = Stored("weight_scale_inv_swizzled", "uint8", (tiles, Dim("columns", per=32, to=128)))
    if backend == "flashinfer_trtllm":
        return (Change("added", Stored("weight_scale_inv_shuffled", "uint8", (tiles, groups))),)
    if backend != "deep_gemm":
        return (Change("added", swizzled),)
    packed = Change("added", Stored("weight_scale_inv_deepgemm", "int32", _WORDS))
    return (Change("added", swizzled, of="others"), packed) if others_by_flashinfer else (packed,)


def mx(in_blocks: bool, beside: tuple[Change, ...], packs_experts: bool) -> Format:
    """A byte of scale, a power of two, for 32 values; `in_blocks`: which become blocks of 128."""
    scales = Dim("columns", per=32)
    return Format(
        "mxfp8",
        (Stored("weight", _FP8, (ROWS, COLUMNS)), Stored("weight_scale_inv", "uint8", (ROWS, scales))),
        (
            Stored("weight", _FP8, (EXPERTS, ROWS, COLUMNS)),
            Stored("weight_scale_inv", "uint8", (EXPERTS, ROWS, scales)),
        ),
        Cut(columns=32),
        Cut(columns=32),
        after_linear=_TO_BLOCKS if in_blocks else beside,
        after_experts=(MX_WORDS,) if packs_experts else (),
    )


def per_tensor(is_static: bool, dtype: str, one_input: bool, by_rows: bool) -> Format:
    """`by_rows`: once loaded it has a scale a row."""
    weights = Stored("weight", dtype, (ROWS, COLUMNS)), Stored("weight_scale", _SCALES, (PARTS,))
    experts = (
        Stored("weight", dtype, (EXPERTS, ROWS, COLUMNS)),
        Stored("weight_scale", _SCALES, (EXPERTS, PARTS)),
    )
    inputs = Stored("input_scale", _SCALES, (ONE if one_input else PARTS,))
    return Format(
        "tensors",
        (*weights, inputs) if is_static else weights,
        (*experts, Stored("input_scale", _SCALES, (EXPERTS,))) if is_static else experts,
        after_linear=(Change("replaced", Stored("weight_scale", _SCALES, (ROWS, ONE))),) if by_rows else (),
    )


def per_row(dtype: str, is_static: bool, one_input: bool) -> Format:
    inputs = (Stored("input_scale", _SCALES, (ONE if one_input else PARTS,)),) if is_static else ()
    return Format(
        "rows",
        (Stored("weight", dtype, (ROWS, COLUMNS)), Stored("weight_scale", _SCALES, (ROWS, ONE)), *inputs),
        (
            Stored("weight", dtype, (EXPERTS, ROWS, COLUMNS)),
            Stored("weight_scale", _SCALES, (EXPERTS, ROWS, ONE)),
        ),
    )
