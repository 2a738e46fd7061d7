"""The inputs of a mixture-of-experts layer: the experts one rank holds, and the experts of each token."""

from dataclasses import dataclass

import torch

from runtime.layers.scaled_linear import dequantize_blocks, dequantize_fp4


@dataclass(frozen=True, slots=True)
class TopK:
    """The router's answer: `ids` are global expert numbers. Some kernels choose by `logits` themselves."""

    ids: torch.Tensor  # [T, k] int32
    weights: torch.Tensor  # [T, k] fp32
    logits: torch.Tensor  # [T, experts] fp32
    correction: torch.Tensor | None = None  # [experts] fp32, added to the scores by kernels that route


@dataclass(slots=True)
class ExpertWeights:
    """Experts `first .. first + local - 1` of one rank, with gate rows before up rows, as in checkpoints.

    `MoEBackend.prepare` brings the rows into the order and layout that a kernel reads.
    """

    w13: torch.Tensor  # [local, 2 I, H], or [local, I, H] without gates
    w2: torch.Tensor  # [local, H, I]
    num_experts: int  # over all ranks
    first: int = 0
    # fp8: one scale per expert, or one per `block`; packed fp4: one per group along k
    w13_scale: torch.Tensor | None = None
    w2_scale: torch.Tensor | None = None
    block: tuple[int, ...] = ()
    w13_global_scale: torch.Tensor | None = None
    w2_global_scale: torch.Tensor | None = None
    w13_input_scale: torch.Tensor | None = None
    w2_input_scale: torch.Tensor | None = None
    w13_bias: torch.Tensor | None = None  # [local, 2 I]
    w2_bias: torch.Tensor | None = None  # [local, H]
    # alpha and limit: (up + 1) * gate * sigmoid(alpha * gate), both clamped; without them silu(gate) * up
    swiglu: tuple[float, ...] = ()
    is_gated: bool = True  # else relu(up) squared

    @property
    def local(self) -> int:
        return self.w13.shape[0]

    def matrices(self, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the two matrices of one expert, dequantized."""
        up = self.w13, self.w13_scale, self.w13_global_scale
        down = self.w2, self.w2_scale, self.w2_global_scale
        return self._matrix(expert, *up), self._matrix(expert, *down)

    def _matrix(
        self, expert: int, weight: torch.Tensor, scale: torch.Tensor | None, global_scale: torch.Tensor | None
    ) -> torch.Tensor:
        if scale is None:
            return weight[expert]
        if weight.dtype == torch.uint8:
            factor = None if global_scale is None else global_scale[expert]
            return dequantize_fp4(weight[expert], scale[expert], factor)
        if self.block:
            return dequantize_blocks(weight[expert], scale[expert], self.block)
        return weight[expert].float() * scale[expert]
