"""What becomes of a layer's tensors after its weights are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.formats.kinds import Kind, Served, format_of, format_of_experts
from runtime.server.formats.read import quantized_of
from runtime.server.formats.tensors import Matrix
from tests.oracle.weights import MAJORS, METHODS, recorded

_LINEAR = Matrix((64, 64), 256, 256, cuts_rows=False)
_UP = Matrix((64, 64), 256, 256, cuts_rows=False, experts=4, all_experts=8)
_FP8_ROWS = [
    ("replaced", "weight", "float8_e4m3fn", (128, 256)),
    ("added", "weight_scale", "float32", (1, 128)),
]
_ORDERS = [("dropped", name, "int32", (4, 256)) for name in ("g_idx", "g_idx_sort_indices")]
# process_weights_after_loading of 0.5.23: layers/quantization/fp8.py; hardware_backend/gpu/quantization/
# gptq_kernels.py; compressed_tensors/schemes/compressed_tensors_wNa16{,_moe}.py; awq, w4afp8.py.
_AFTER: tuple[tuple[str, Kind, Served, Matrix, list[Any]], ...] = (
    ("fp8 online", Kind("fp8_online"), Served(), _LINEAR, _FP8_ROWS),
    (
        "fp8 online's experts",
        Kind("fp8_online"),
        Served(),
        _UP,
        [
            ("replaced", "weight", "float8_e4m3fn", (4, 128, 256)),
            ("replaced", "weight_scale", "float32", (4,)),
        ],
    ),
    (
        "mxfp8 online",
        Kind("mxfp8_online"),
        Served(),
        _LINEAR,
        [
            ("replaced", "weight", "float8_e4m3fn", (128, 256)),
            ("added", "weight_scale_inv", "uint8", (128, 8)),
        ],
    ),
    (
        "mxfp8 online's experts",
        Kind("mxfp8_online"),
        Served(),
        _UP,
        [
            ("replaced", "weight", "float8_e4m3fn", (4, 128, 256)),
            ("replaced", "weight_scale_inv", "uint8", (4, 128, 8)),
        ],
    ),
    (
        "blocks that DeepGEMM packs, four scales of a row in a word",
        Kind("fp8", "block"),
        Served(sm_major=10),
        _LINEAR,
        [
            ("replaced", "weight", "float8_e4m3fn", (128, 256)),
            ("replaced", "weight_scale_inv", "int32", (128, 1)),
        ],
    ),
    ("blocks before Blackwell", Kind("fp8", "block"), Served(), _LINEAR, []),
    (
        "gptq",
        Kind("gptq", group=128),
        Served(),
        _LINEAR,
        [
            ("dropped", "g_idx", "int32", (256,)),
            ("dropped", "qzeros", "int32", (2, 16)),
            ("copied", "qweight", "int32", (32, 128)),
            ("copied", "scales", "model", (2, 128)),
        ],
    ),
    (
        "gptq by activation, which keeps the order",
        Kind("gptq", group=128, by_activation=True),
        Served(),
        _LINEAR,
        [
            ("added", "g_idx_sort_indices", "int32", (256,)),
            ("dropped", "qzeros", "int32", (2, 16)),
            ("copied", "qweight", "int32", (32, 128)),
            ("copied", "scales", "model", (2, 128)),
        ],
    ),
    (
        "gptq's experts",
        Kind("gptq", group=128),
        Served(),
        _UP,
        [
            *_ORDERS,
            ("copied", "qweight", "int32", (4, 32, 128)),
            ("copied", "scales", "float16", (4, 2, 128)),
        ],
    ),
    (
        "gptq's experts by activation",
        Kind("gptq", group=128, by_activation=True),
        Served(),
        _UP,
        [("copied", "qweight", "int32", (4, 32, 128)), ("copied", "scales", "float16", (4, 2, 128))],
    ),
    (
        "packed integers' experts",
        Kind("packed", group=32),
        Served(),
        _UP,
        [
            ("dropped", "weight_g_idx", "int32", (4, 256)),
            ("dropped", "g_idx_sort_indices", "int32", (4, 256)),
            ("copied", "weight_packed", "int32", (4, 32, 128)),
            ("copied", "weight_scale", "model", (4, 8, 128)),
        ],
    ),
    (
        "packed integers' experts by activation",
        Kind("packed", group=32, by_activation=True),
        Served(),
        _UP,
        [
            ("copied", "weight_packed", "int32", (4, 32, 128)),
            ("copied", "weight_scale", "model", (4, 8, 128)),
        ],
    ),
    (
        "w4afp8",
        Kind("w4afp8", group=128),
        Served(),
        _UP,
        [("replaced", "weight_scale_inv", "bfloat16", (4, 2, 128))],
    ),
)


@pytest.mark.parametrize(
    ("what", "kind", "served", "matrix", "changes"), _AFTER, ids=[one[0] for one in _AFTER]
)
def test_what_becomes_of_a_layer_after_loading(
    what: str, kind: Kind, served: Served, matrix: Matrix, changes: list[Any]
) -> None:
    found = format_of(kind, served).after(matrix)
    assert [(change.how, made.name, made.dtype, made.shape) for change, made in found] == changes


@pytest.mark.parametrize("what", METHODS)
def test_what_is_changed_after_loading_is_there_and_a_file_holds_what_is_loaded(what: str) -> None:
    """A tensor that is copied or dropped is one that was created, or was added before."""
    for case, answer in recorded():
        if case["what"] != what or "refused" in answer:
            continue
        quantized, served = (
            quantized_of(case["section"], _method(case)),
            Served(MAJORS[case["gpu"]], case["backend"]),
        )
        if "experts" in case:
            kind = quantized.of_experts(case["name"])
            made = format_of_experts(kind, served, case["hidden"], case["inner"])
            created, changes = made.experts, made.after_experts
        else:
            made = format_of(quantized.linear, served)
            created, changes = made.linear, made.after_linear
        names = {one.name for one in created}
        for change in changes:
            assert change.how in ("copied", "replaced", "added", "dropped")
            assert change.how == "added" or change.tensor.name in names, change
            names = names - {change.tensor.name} if change.how == "dropped" else names | {change.tensor.name}


def _method(case: dict[str, Any]) -> str:
    told: str = case["section"]["quant_method"]
    return case["method"] if told == "modelopt" else told
