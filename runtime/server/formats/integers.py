"""Integers packed in int32: GPTQ, AWQ and compressed-tensors' own. layers/quantization: gptq/schemes,
awq/schemes, compressed_tensors/schemes/compressed_tensors_wNa16*.py."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.errors import ConfigError
from runtime.server.formats.tensors import (
    COLUMNS,
    EXPERTS,
    MODEL,
    ONE,
    ROWS,
    Change,
    Cut,
    Dim,
    Format,
    Of,
    Stored,
)

_WORD = "int32"
# srt/layers/quantization/marlin_utils.py asks the whole of a matrix of AWQ's, and ends at a rank's share.
_TILE, _OF_MARLIN = (64, 128), (-1, 32, 64, 128)
_TWO = Dim("one", to=2)


def gptq(bits: int, group: int, by_activation: bool) -> Format:
    """Marlin's, the only kernels: `by_activation`, groups are of columns anywhere, which `g_idx` tells."""
    pack = 32 // bits
    repeats = by_activation and group != -1
    groups = _groups(group, repeats)
    # srt/.../gptq_moe.py: w2's scales are a rank's own with activation order, and whole without.
    expert_groups = _groups(group, not repeats)
    packed_rows, packed_columns = Dim("rows", per=pack), Dim("columns", per=pack)
    weight = Stored("qweight", _WORD, (packed_columns, ROWS))
    order = Stored("g_idx", _WORD, (COLUMNS,))
    scales = Stored("scales", MODEL, (groups, ROWS))
    zeros = Stored("qzeros", _WORD, (groups, packed_rows))
    expert = Stored("qweight", _WORD, (EXPERTS, packed_columns, ROWS))
    expert_scales = Stored("scales", "float16", (EXPERTS, expert_groups, ROWS))
    expert_order = Stored("g_idx", _WORD, (EXPERTS, COLUMNS))
    sorted_order = Stored("g_idx_sort_indices", _WORD, (EXPERTS, COLUMNS), in_file=False)
    keep = (Change("added", Stored("g_idx_sort_indices", _WORD, (COLUMNS,), in_file=False)),)
    return Format(
        "gptq",
        (weight, order, scales, zeros),
        (
            expert,
            expert_scales,
            # In the model's dtype, though they are integers.
            Stored("qzeros", MODEL, (EXPERTS, expert_groups, packed_rows)),
            expert_order,
            sorted_order,
        ),
        _cut(pack, group),
        replace(_cut(pack, group if repeats else pack), all_columns=max(group, 1)),
        after_linear=(
            *(keep if repeats else (Change("dropped", order),)),
            Change("dropped", zeros),
            Change("copied", weight),
            Change("copied", scales),
        ),
        after_experts=(
            *(() if repeats else (Change("dropped", expert_order), Change("dropped", sorted_order))),
            Change("copied", expert),
            Change("copied", expert_scales),
        ),
    )


def awq(bits: int, group: int) -> Format:
    pack = 32 // bits
    groups, packed_rows = _groups(group, False), Dim("rows", per=pack)
    linear = (
        Stored("qweight", _WORD, (COLUMNS, packed_rows)),
        Stored("qzeros", _WORD, (groups, packed_rows)),
        Stored("scales", MODEL, (groups, ROWS)),
    )
    experts = (
        Stored("qweight", _WORD, (EXPERTS, COLUMNS, packed_rows)),
        Stored("scales", MODEL, (EXPERTS, groups, ROWS)),
        Stored("qzeros", _WORD, (EXPERTS, groups, packed_rows)),
    )
    return Format(
        "awq",
        linear,
        experts,
        replace(_cut(pack, group), tile=_TILE if bits == 4 and group in _OF_MARLIN else None),
        _cut(pack, group),
        after_linear=tuple(Change("copied", one) for one in linear),
        after_experts=tuple(Change("copied", one) for one in experts),
    )


def wna16(bits: int, group: int, hidden: int, inner: int) -> Format:
    """AWQ's experts of sizes that Marlin's kernels do not take, of a rank; moe_wna16.py."""
    while inner % group or hidden % group:
        group //= 2
        if group < 32:
            raise ConfigError(
                f"a rank has {inner} of the experts' inner size: SGLang ends at groups below 32",
                "choose a smaller --tp, or --ep",
            )
    values, groups = Dim("columns", per=8 // bits), Dim("columns", per=group)
    return Format(
        "awq",
        (),
        (
            Stored("qweight", "uint8", (EXPERTS, ROWS, values)),
            Stored("scales", MODEL, (EXPERTS, ROWS, groups)),
            Stored("qzeros", "uint8", (EXPERTS, Dim("rows", per=8 // bits), groups)),
        ),
    )


def packed(
    bits: int, group: int, symmetric: bool, by_activation: bool, whole_scales: bool, by_trtllm: bool = False
) -> Format:
    """Of compressed-tensors. A group of -1 is a whole row; `whole_scales`: of experts, those of all ranks.
    TRT-LLM's kernels want no order."""
    pack = 32 // bits
    groups = _groups(group, by_activation and group != -1)
    weight = Stored("weight_packed", _WORD, (ROWS, Dim("columns", per=pack)))
    scales = Stored("weight_scale", MODEL, (ROWS, groups))
    zeros = Stored("weight_zero_point", _WORD, (Dim("rows", per=pack), groups))
    order = Stored("weight_g_idx", _WORD, (COLUMNS,))
    expert = Stored("weight_packed", _WORD, (EXPERTS, Dim("columns", per=pack), ROWS))
    expert_groups = _groups(group, whole_scales and group != -1)
    expert_scales = Stored("weight_scale", MODEL, (EXPERTS, expert_groups, ROWS))
    expert_zeros = Stored("weight_zero_point", _WORD, (EXPERTS, expert_groups, Dim("rows", per=pack)))
    orders = tuple(
        Stored(name, _WORD, (EXPERTS, COLUMNS), in_file=by_activation and name == "weight_g_idx")
        for name in (() if by_trtllm else ("weight_g_idx", "g_idx_sort_indices"))
    )
    return Format(
        "packed integers",
        (
            weight,
            scales,
            Stored("weight_shape", "int64", (_TWO,)),
            *(() if symmetric else (zeros,)),
            *((order,) if by_activation else ()),
        ),
        (
            expert,
            expert_scales,
            # Its two sizes, in the model's dtype.
            Stored("weight_shape", MODEL, (EXPERTS, _TWO)),
            *(() if symmetric else (expert_zeros,)),
            *orders,
        ),
        _cut(pack, group),
        _cut(pack, group),
        after_linear=(Change("copied", weight), Change("copied", scales)),
        after_experts=(
            *(() if by_activation else (Change("dropped", one) for one in orders)),
            Change("copied", expert),
            Change("copied", expert_scales),
        ),
    )


def w4afp8(group: int) -> Format:
    """Two integers a byte for the experts; layers/quantization/w4afp8.py. The rest is in fp8 blocks."""
    halves, groups = Dim("columns", per=2), Dim("columns", per=group)
    scale = Stored("weight_scale_inv", "bfloat16", (EXPERTS, groups, ROWS))
    return Format(
        "w4afp8",
        (),
        (
            Stored("weight", "int8", (EXPERTS, ROWS, halves)),
            Stored("weight_scale_inv", "float32", (EXPERTS, ROWS, groups)),
            Stored("input_scale", "bfloat16", (EXPERTS, Dim("parts"))),
        ),
        experts_cut=Cut(columns=group, what="its groups"),
        after_experts=(Change("replaced", scale),),
    )


def _groups(group: int, of_all_ranks: bool) -> Dim:
    if group == -1:
        return ONE
    of: Of = "all_columns" if of_all_ranks else "columns"
    return Dim(of, per=group)


def _cut(pack: int, group: int) -> Cut:
    return Cut(pack, max(group, 1), always=True, what="a quantization group or word")
