"""What a checkpoint calls its tensors."""

from __future__ import annotations

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
    shared_in_mlp: bool = True  # or beside it
    gate_up: str = "gate_up_proj"  # where the two are one matrix
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    packs_groups: bool = False  # each KV head in it stands behind those that ask it
    packed_qkv: str | None = None  # the one matrix of queries, keys and values, where there are no three
    attention_out: str = "o_proj"
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    head: str = "lm_head"


USUAL = TensorNames()
# The module of the experts, where it is none of the usual
EXPERTS_IN = dict.fromkeys(
    (
        *("mixtral", "minimax_m2", "phimoe"),
        *("granitemoe", "granitemoehybrid", "granitemoeshared", "granitemoe_swa"),
    ),
    ".block_sparse_moe",
)
EXPERTS_IN["gemma4_text"] = ".moe"
