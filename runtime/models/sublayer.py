"""How attention, and what follows it, are entered from the residual and left again, with a norm at either."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece
from runtime.models.build import Build, RowNorm

_ATTENTION = {
    "before": ("input_layernorm", None),
    "around": ("input_layernorm", "post_self_attn_layernorm"),
    "sandwich": ("input_layernorm", "post_attention_layernorm"),
    "paired": ("input_layernorm", "post_attention_layernorm"),
    "counted": ("input_layernorm", "post_attention_layernorm"),
    "flanked": ("pre_attn_norm", "post_attn_norm"),
    "enclosed": ("input_layernorm", "post_self_attn_layernorm"),
    "after": (None, "post_attention_layernorm"),
    "alone": ("norm", None),
    "operator": ("operator_norm", None),
    "attention": ("attention_norm", None),
    "feed": ("input_layernorm", None),
    "named": ("attention_layernorm", None),
    "numbered": ("ln_1", None),
    "final": ("self_attn_layer_norm", None),
    "nested": ("norm_attn_norm.norm_1", None),
    "short": ("attn_norm", None),
    "apart": ("input_layernorm", None),
    "beside": ("input_layernorm", None),
    "none": (None, None),
}
_MLP = {
    "before": ("post_attention_layernorm", None),
    "late": ("post_attention_layernorm", None),
    "joined": ("post_attention_layernorm", None),
    "around": ("post_attention_layernorm", "post_mlp_layernorm"),
    "sandwich": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    "paired": ("pre_mlp_layernorm", "post_mlp_layernorm"),
    "counted": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    "flanked": ("pre_moe_norm", "post_moe_norm"),
    "enclosed": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "after": (None, "post_feedforward_layernorm"),
    "alone": ("norm", None),
    "operator": ("ffn_norm", None),
    "attention": ("ffn_norm", None),
    "feed": ("pre_ff_layernorm", None),
    "named": ("feedforward_layernorm", None),
    "numbered": ("ln_2", None),
    "final": ("final_layer_norm", None),
    "nested": ("norm_attn_norm.norm_2", None),
    "short": ("mlp_norm", None),
    "apart": ("post_attention_layernorm", None),
    "beside": ("post_attention_layernorm", None),
    "none": (None, None),
}


class SublayerNorms(nn.Module):
    def __init__(self, before: RowNorm | None, after: RowNorm | None, multiplier: float = 1.0) -> None:
        super().__init__()
        self.before, self.after, self.multiplier = before, after, multiplier

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """What goes in, and the residual with the last answer added. Without a norm the two are one."""
        if residual is None:
            return (hidden if self.before is None else self.before(hidden)), hidden
        if self.before is None:
            return residual.add_(hidden), residual
        return self.before.add(hidden, residual), residual

    def leave(self, answer: torch.Tensor) -> torch.Tensor:
        normed = answer if self.after is None else self.after.in_place(answer)
        return normed if self.multiplier == 1 else normed.mul_(self.multiplier)

    def pieces(self) -> Iterator[Piece]:
        for norm in (self.before, self.after):
            if norm is not None:
                yield from norm.pieces()


class JoinedNorms(nn.Module):
    """What attends to a token's embedding beside what a target made of the token, each normed by itself."""

    def __init__(self, token: RowNorm, state: RowNorm) -> None:
        super().__init__()
        self.token, self.state = token, state

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Without a target, as where its kernels are tuned, the embedding stands for both."""
        state = hidden if residual is None else residual
        return torch.cat([self.token(hidden), self.state(state)], dim=-1), state

    def leave(self, answer: torch.Tensor) -> torch.Tensor:
        return answer

    def pieces(self) -> Iterator[Piece]:
        yield from (*self.token.pieces(), *self.state.pieces())


def around_attention(build: Build, layer: str, half: str = "") -> SublayerNorms | JoinedNorms:
    if build.model.norms == "joined":
        return JoinedNorms(
            build.norm_of_rows(f"{layer}.input_layernorm"), build.norm_of_rows(f"{layer}.hidden_norm")
        )
    if build.model.norms == "parallel":
        return _made(build, layer, half, build.model.names.entry_norm, None)
    return _made(build, layer, half, *_ATTENTION[build.model.norms])


def around_mlp(build: Build, layer: str, half: str = "") -> SublayerNorms | None:
    """Beside attention it has what attention has."""
    if build.model.norms == "parallel":
        return None
    return _made(build, layer, half, *_MLP[build.model.norms])


def _made(build: Build, layer: str, half: str, before: str | None, after: str | None) -> SublayerNorms:
    eps = build.model.answer_eps
    first = None if before is None else build.norm_of_rows(f"{layer}.{before}{half}")
    last = None if after is None else build.norm_of_rows(f"{layer}.{after}{half}", eps)
    return SublayerNorms(first, last, build.model.multipliers.residual)
