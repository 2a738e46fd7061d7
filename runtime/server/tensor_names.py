"""What a checkpoint calls its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a checkpoint calls the parts that every decoder has."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    attention: str = "self_attn"
    recurrent: str = "linear_attn"
    mlp: str = "mlp"
    shared: str = "shared_experts"
    gate_up: str = "gate_up_proj"  # where the two are one matrix
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    head: str = "lm_head"

    def listed(self, parts: Sequence[str]) -> list[str]:
        """What lists call these, which are run as one."""
        return [*parts]


USUAL = TensorNames()
# The module of the experts, where it is none of the usual
EXPERTS_IN = dict.fromkeys(("mixtral", "minimax_m2"), ".block_sparse_moe")
