"""The keys of each op under every FlashInfer, for experts and matrices of sizes that divide and do not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from runtime.server.call_rules import Routing
from runtime.server.flashinfer import FLASHINFERS
from sgl_tune.keys import dense_ops, op_shapes
from sgl_tune.keys.op_shapes import Experts, OpShape
from tests.book.plain import plain
from tests.book.rows import Row

_EXPERTS = (
    Experts(4096, 1536, 32, 128, 8, tp=2, ep=4),
    Experts(2880, 384, 128, 128, 4, tp=1, ep=1, gated=False),
)
_BF16, _E4M3 = op_shapes.Dtype("torch.bfloat16"), op_shapes.Dtype("torch.float8_e4m3fn")
_ROUTINGS: tuple[Routing, ...] = ("logits", "packed", "apart")


def lookups() -> Iterator[Row]:
    for row in FLASHINFERS:
        for number, shape in enumerate(_shapes(row.keys)):
            yield f"{row.since} {number} {shape.op}", _told(shape, row.keys)


def _shapes(form: op_shapes.KeyForm) -> Iterator[OpShape]:
    for k, n in ((4096, 6144), (2880, 200), (96, 33)):
        yield dense_ops.products_in_fp8(k, n, _BF16, form, "own")
        yield from (
            dense_ops.dense_fp4(k, n, backend, _BF16, form, "own") for backend in dense_ops.FP4_RUNNERS
        )
        yield from (
            dense_ops.dense_mxfp8(k, n, backend, _BF16, form, "own") for backend in dense_ops.MXFP8_RUNNERS
        )
    for experts in _EXPERTS:
        for on, packed in product((True, False), (1, 2)):
            yield from op_shapes.cutlass_moe(
                experts, form, activation=_E4M3, weight=_BF16, output=_BF16, fused_finalize=on,
                alltoall=not on,
                packed=packed, rows_packed=packed, biases=on, mxfp8_rows=on, weight_groups=not on,
            )  # fmt: skip
        for routing in _ROUTINGS:
            yield op_shapes.trtllm_fp8_block_moe(experts, routing)
            yield op_shapes.trtllm_mxfp8_moe(experts, routing)
            yield op_shapes.trtllm_fp8_tensor_moe(experts, routing)
            yield op_shapes.trtllm_bf16_moe(experts, routing)
            yield from (op_shapes.trtllm_nvfp4_moe(experts, routing, by_token) for by_token in (True, False))
        yield op_shapes.trtllm_mxint4_moe(experts)
        yield op_shapes.trtllm_mxfp4_moe(experts, 2880)
        for by_token in (True, False):
            yield op_shapes.cutedsl_nvfp4_moe(experts, (0, 32), form, _BF16, not by_token, by_token)
        yield from op_shapes.cpu_moe(experts, _BF16)


def _told(shape: OpShape, form: op_shapes.KeyForm) -> list[object]:
    return [shape.runner, plain(shape.policy), *shape.keys(7, form)]


KEYS_OF = {"lookups": lookups}
