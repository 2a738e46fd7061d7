"""Expert weights as FlashInfer's TRT-LLM kernels read them: [up, gate], rows shuffled, scales interleaved.

They are changed in place, one expert at a time, as in SGLang: a second copy of all experts may not fit.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from runtime.moe.weights import ExpertWeights
from runtime.server.errors import ConfigError

Kind = Literal["bf16", "fp8_block", "nvfp4"]

_TILE_ROWS = 128  # of the kernels' epilogue
_BLOCK_BYTES = 128  # along k, in the block-major layout of bf16
_FP4_GROUP = 16

Permutations = dict[torch.Size, Tensor]


def kind_of(weights: ExpertWeights) -> Kind:
    if weights.w13.dtype == torch.bfloat16:
        return "bf16"
    if weights.w13.dtype == torch.float8_e4m3fn and weights.block:
        return "fp8_block"
    if weights.w13.dtype == torch.uint8 and weights.w13_global_scale is not None:
        return "nvfp4"
    raise ConfigError(
        "--moe-runner-backend flashinfer_trtllm takes bf16, fp8 in blocks or nvfp4 experts here, "
        f"not {weights.w13.dtype}"
    )


def lay_out(weights: ExpertWeights) -> ExpertWeights:
    """Return the weights in the kernel's layout. On meta nothing moves, because only the order changes."""
    kind = kind_of(weights)
    with torch.no_grad():
        if kind == "nvfp4":
            weights = _with_kernel_scales(weights)
        if weights.w13.is_meta:
            return weights
        swap_halves(weights.w13)
        if kind != "bf16" and weights.w13_scale is not None:
            swap_halves(weights.w13_scale)
        if kind == "bf16":
            return _block_major(weights)
        return _shuffled_fp4(weights) if kind == "nvfp4" else weights


def swap_halves(rows: Tensor) -> None:
    """Turn [gate, up] into [up, gate], in place."""
    half = rows.shape[1] // 2
    for expert in rows:
        gate = expert[:half].clone()
        expert[:half].copy_(expert[half:])
        expert[half:].copy_(gate)


def _block_major(weights: ExpertWeights) -> ExpertWeights:
    from flashinfer.fused_moe.core import convert_to_block_layout

    known: Permutations = {}

    def packed(matrices: Tensor, is_up: bool) -> Tensor:
        for expert in matrices:
            rows = expert.clone().view(torch.uint8)
            rows = rows[_permutation(known, rows, is_up)].contiguous()
            blocks = convert_to_block_layout(rows, _BLOCK_BYTES)
            expert.copy_(blocks.view(torch.bfloat16).reshape(expert.shape))
        return matrices.view(matrices.shape[0], *blocks.view(torch.bfloat16).shape)

    return replace(weights, w13=packed(weights.w13, True), w2=packed(weights.w2, False))


def _shuffled_fp4(weights: ExpertWeights) -> ExpertWeights:
    from flashinfer import nvfp4_block_scale_interleave

    known: Permutations = {}
    for matrices, scales, is_up in (
        (weights.w13, weights.w13_scale, True),
        (weights.w2, weights.w2_scale, False),
    ):
        assert scales is not None
        for expert, scale in zip(matrices, scales.view(torch.uint8), strict=True):
            expert.copy_(expert[_permutation(known, expert, is_up)])
            rows = scale[_permutation(known, scale, is_up, _FP4_GROUP)]
            scale.copy_(nvfp4_block_scale_interleave(rows).view(scale.shape))
    return weights


def _permutation(known: Permutations, rows: Tensor, is_up: bool, scale_group: int | None = None) -> Tensor:
    from flashinfer.fused_moe.core import (
        _maybe_get_cached_w3_w1_permute_indices,
        get_w2_permute_indices_with_cache,
    )

    if is_up:
        order = _maybe_get_cached_w3_w1_permute_indices(
            known, rows, _TILE_ROWS, num_elts_per_sf=scale_group, is_gated_act_gemm=True
        )
    else:
        order = get_w2_permute_indices_with_cache(known, rows, _TILE_ROWS, num_elts_per_sf=scale_group)
    return order.to(rows.device)


def _with_kernel_scales(weights: ExpertWeights) -> ExpertWeights:
    """Fold the input scales into each GEMM's factor, and invert them to quantise inputs with."""
    factors = (weights.w13_global_scale, weights.w2_global_scale)
    inputs = (weights.w13_input_scale, weights.w2_input_scale)
    w13, w2, w13_input, w2_input = (None if s is None else s.float() for s in (*factors, *inputs))
    if w13 is None or w2 is None or w13_input is None or w2_input is None:
        raise ConfigError("nvfp4 experts need their calibrated input scales (modelopt_fp4)")
    w13_input, w2_input = w13_input.max(), w2_input.max()
    return replace(
        weights,
        w13_global_scale=w13 * w13_input,
        w2_global_scale=w2 * w2_input,
        w13_input_scale=w13_input.reciprocal(),
        w2_input_scale=w2_input.reciprocal(),
    )
