"""The experts of one rank."""

import torch
from torch import nn

from runtime.decoder.build import Build
from runtime.layers.linear import register
from runtime.layers.loading import length, shard
from runtime.layers.quantization import BlockFp8, Matrix, Scheme
from runtime.moe.weights import ExpertWeights


class Experts(nn.Module):
    """The experts of one rank. `fused_shared` counts the shared experts that run after the routed ones."""

    def __init__(self, build: Build, name: str, fused_shared: int = 0) -> None:
        super().__init__()
        moe, comm = build.model.moe, build.comm
        assert moe is not None
        self.name, self.moe, self.dtype = name, moe, build.dtype
        self.shared_name, self.is_gated = build.model.shared_name(name), build.model.style.gated
        ranks, rank, what = comm.size("moe_ep"), comm.rank("moe_ep"), "the number of experts"
        self.total = moe.num_experts + fused_shared
        self.numbers = shard(self.total, ranks, rank, what)
        over, place = comm.size("moe_tp"), comm.rank("moe_tp")
        self.inner = shard(moe.intermediate_size, over, place, "the experts' intermediate size")
        self.hidden = slice(0, moe.latent_size or build.model.hidden_size)
        self.adds_bias = place == 0
        self.scheme: Scheme = build.expert_scheme(build.model.experts_name(name))
        inner, hidden, held = length(self.inner), length(self.hidden), length(self.numbers)
        self.up_matrix = Matrix((inner,) * (1 + self.is_gated), hidden, over > 1, experts=held)
        self.down_matrix = Matrix((hidden,), inner, False, over > 1, held, is_down=True)
        self.padded = self.up_matrix.padded(self.scheme.padding).rows[0]
        sides = {"up": self._tensors(self.up_matrix, build), "down": self._tensors(self.down_matrix, build)}
        known = register(
            self, {f"{one}_{name}": x for one, side in sides.items() for name, x in side.items()}
        )
        self.up, self.down = ({name: known[f"{one}_{name}"] for name in sides[one]} for one in sides)

    def _tensors(self, matrix: Matrix, build: Build) -> dict[str, torch.Tensor]:
        tensors = self.scheme.create(matrix, build.dtype, build.device)
        padded = matrix.padded(self.scheme.padding)
        if padded != matrix:
            for tensor in tensors.values():
                tensor.zero_()
        if self.moe.biases and "bias" not in tensors:
            shape = matrix.experts, sum(padded.rows)
            tensors["bias"] = torch.zeros(shape, dtype=build.dtype, device=build.device)
        return tensors

    def weights(self) -> ExpertWeights:
        scale = "weight_scale_inv" if isinstance(self.scheme, BlockFp8) else "weight_scale"
        up: dict[str, torch.Tensor] = dict(self.up)
        down: dict[str, torch.Tensor] = dict(self.down)
        if self.scheme.name == "mxfp4" and up["weight"].is_meta:
            up, down = self._as_if_plain()
        return ExpertWeights(
            w13=up["weight"],
            w2=down["weight"],
            num_experts=self.total,
            first=self.numbers.start,
            w13_scale=_one_an_expert(up.get(scale)),
            w2_scale=down.get(scale),
            block=self.scheme.block if isinstance(self.scheme, BlockFp8) else (),
            w13_global_scale=_one_an_expert(up.get("weight_scale_2")),
            w2_global_scale=down.get("weight_scale_2"),
            w13_input_scale=up.get("input_scale"),
            w2_input_scale=down.get("input_scale"),
            w13_bias=up.get("bias"),
            w2_bias=down.get("bias"),
            swiglu=self.moe.swiglu,
            is_gated=self.is_gated,
        )

    def _as_if_plain(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return plain shapes for mxfp4 weights: a prediction needs only the sizes."""
        one = torch.empty((), dtype=self.dtype, device="meta")
        hidden, rows, local = length(self.hidden), sum(self.up_matrix.rows), length(self.numbers)
        up = {"weight": one.expand(local, rows, hidden)}
        down = {"weight": one.expand(local, hidden, length(self.inner))}
        if self.moe.biases:
            up["bias"], down["bias"] = one.expand(local, rows), one.expand(local, hidden)
        return up, down


def _one_an_expert(scale: torch.Tensor | None) -> torch.Tensor | None:
    """Return one scale per expert: the larger of the gate's and the up's if each has its own."""
    return scale.amax(dim=1) if scale is not None and scale.dim() == 2 else scale
