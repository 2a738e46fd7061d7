"""Matrices in the model's own dtype, and what a server quantizes after it has loaded them so."""

from __future__ import annotations

from runtime.server.formats.eight_bits import MX_WORDS
from runtime.server.formats.tensors import (
    COLUMNS,
    EXPERTS,
    MODEL,
    ONE,
    PARTS,
    ROWS,
    Change,
    Cut,
    Dim,
    Format,
    Stored,
)

_WEIGHT, _EXPERTS = (
    Stored("weight", MODEL, (ROWS, COLUMNS)),
    Stored("weight", MODEL, (EXPERTS, ROWS, COLUMNS)),
)
PLAIN = Format("plain", (_WEIGHT,), (_EXPERTS,))

# layers/quantization/fp8.py: a scale for each row of a matrix; those of experts are made beside them.
FP8_ONLINE = Format(
    "fp8, made after loading",
    (_WEIGHT,),
    (_EXPERTS, Stored("weight_scale", "float32", (EXPERTS, PARTS))),
    after_linear=(
        Change("replaced", Stored("weight", "float8_e4m3fn", (ROWS, COLUMNS))),
        Change("added", Stored("weight_scale", "float32", (ONE, ROWS))),
    ),
    after_experts=(
        Change("replaced", Stored("weight", "float8_e4m3fn", (EXPERTS, ROWS, COLUMNS))),
        Change("replaced", Stored("weight_scale", "float32", (EXPERTS,))),
    ),
)
_GROUPS = Dim("columns", per=32)
_MX_SCALES = Stored("weight_scale_inv", "uint8", (EXPERTS, ROWS, _GROUPS))


def mxfp8_online(beside: tuple[Change, ...], packs_experts: bool) -> Format:
    """`beside`, `packs_experts`: as mxfp8 that is loaded."""
    return Format(
        "mxfp8, made after loading",
        (_WEIGHT,),
        (_EXPERTS, _MX_SCALES),
        Cut(columns=32),
        Cut(columns=32),
        after_linear=(
            Change("replaced", Stored("weight", "float8_e4m3fn", (ROWS, COLUMNS))),
            Change("added", Stored("weight_scale_inv", "uint8", (ROWS, _GROUPS))),
            *beside,
        ),
        after_experts=(
            Change("replaced", Stored("weight", "float8_e4m3fn", (EXPERTS, ROWS, COLUMNS))),
            MX_WORDS if packs_experts else Change("replaced", _MX_SCALES),
        ),
    )
