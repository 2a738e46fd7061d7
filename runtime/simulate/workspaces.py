"""Memory a CUDA op takes while it runs and nobody sees: declared here, so that a prediction contains it.

`DECLARED` maps an op to a function of its arguments by name: the sizes in bytes of what lives until the op
returns. The opaque `sgl_tune::` kernels and the torch ops with hidden temporaries belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Declaration = Callable[[Mapping[str, Any]], Sequence[int]]

# torch takes one workspace for each stream that runs a GEMM, and keeps it.
GEMM_OPS = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm"))


class Workspaces:
    """`gemm_bytes` is torch's cuBLAS workspace on the GPU in question; 0 where there is none."""

    def __init__(self, gemm_bytes: int = 0, declared: Mapping[str, Declaration] | None = None) -> None:
        self._gemm_bytes = gemm_bytes
        self._declared = DECLARED if declared is None else declared
        self._streams: set[int] = set()

    def kept(self, name: str, stream: int) -> int:
        """Bytes that an op takes and never gives back."""
        if not self._gemm_bytes or name not in GEMM_OPS or stream in self._streams:
            return 0
        self._streams.add(stream)
        return self._gemm_bytes

    def transient(
        self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Sequence[int]:
        """Sizes in bytes of what lives until the op returns."""
        if name not in self._declared:
            return ()
        told = {argument.name: argument.default_value for argument in func._schema.arguments}
        return self._declared[name](told | dict(zip(told, args, strict=False)) | dict(kwargs))


def _fp8_block_linear(args: Mapping[str, Any]) -> Sequence[int]:
    """The activation in fp8, and its scales."""
    rows, size = args["x"].shape
    return [rows * size, rows * -(-size // args["block"][1]) * 4]


def _fp8_head_products(args: Mapping[str, Any]) -> Sequence[int]:
    """The activation in fp8, as srt's per_tensor_quant_mla_fp8 makes it."""
    return [args["rows"].numel()]


def _fp8_tensor_linear(args: Mapping[str, Any]) -> Sequence[int]:
    """The activation scaled in fp32, then in fp8."""
    return [args["x"].numel() * 4, args["x"].numel()]


def _fp4_linear(args: Mapping[str, Any]) -> Sequence[int]:
    """The activation in fp4, and its scales."""
    return [args["x"].numel() // 2, args["x"].numel() // 16]


def _triton_moe(args: Mapping[str, Any]) -> Sequence[int]:
    """SGLang's Triton experts, for which the reference stands: one buffer for both products, one between."""
    tokens, top_k = args["ids"].shape
    _, double, hidden = args["stored"][0].shape
    itemsize = args["x"].element_size()
    slots = tokens * top_k
    return [slots * max(double, hidden) * itemsize, slots * double // 2 * itemsize]


def _cutlass_moe(args: Mapping[str, Any]) -> Sequence[int]:
    """One buffer: the inputs of either product, the outputs of either, and maps from slots to rows."""
    tokens, top_k = args["ids"].shape
    experts, double, hidden = args["w13"].shape
    slots, itemsize, out_size = tokens * top_k, args["w13"].element_size(), args["x"].element_size()
    inputs = slots * max(hidden * max(itemsize, out_size), double // 2 * itemsize)
    outputs = slots * max(double, hidden) * out_size
    return [inputs + outputs + 4 * (4 * slots + experts * tokens)]


def _trtllm_moe(args: Mapping[str, Any]) -> Sequence[int]:
    """Both products' results for slots padded to a tile an expert; in fp8 the activation is apart."""
    tokens, top_k = args["ids"].shape
    slots, inner = tokens * top_k, args["intermediate"]
    tile = min(128, max(8, 1 << (slots // args["num_experts"]).bit_length()))
    padded = slots + min(slots, args["num_experts"]) * (tile - 1)
    first = {"bf16": [2 * inner], "fp8_block": [2 * inner, inner], "nvfp4": [inner]}[args["kind"]]
    return [padded * width for width in (*first, 2 * args["x"].shape[1])]


DECLARED: dict[str, Declaration] = {
    "sgl_tune::cutlass_moe": _cutlass_moe,
    "sgl_tune::trtllm_moe": _trtllm_moe,
    "sgl_tune::fp8_block_linear": _fp8_block_linear,
    "sgl_tune::fp8_head_products": _fp8_head_products,
    "sgl_tune::fp8_tensor_linear": _fp8_tensor_linear,
    "sgl_tune::fp4_linear": _fp4_linear,
    "sgl_tune::torch_moe": _triton_moe,
}
