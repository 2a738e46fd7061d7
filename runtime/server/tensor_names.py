"""What a checkpoint calls its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GATE_UP = "gate_up_proj"


@dataclass(frozen=True, slots=True)
class ServedNames:
    """What SGLang's class calls a matrix when it asks how it is quantized, where that is another name.

    `paths`: expressions, and what stands for them there; `files`: in lists. `plain`: ends of names that are
    never quantized. `experts`: what lists call theirs, in the module of an MLP. `plain_experts`: those are
    never quantized. `bare`: what of each layer has no method, so that a list has to keep it plain. `by_rows`:
    the matrix that its class takes apart by rows, so that nothing of it may be stored otherwise."""

    paths: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    plain: tuple[str, ...] = ()
    plain_in_file: tuple[str, ...] = ()  # ... and quantized where a server does that
    plain_in_fp4: tuple[str, ...] = ()  # ... in ModelOpt's
    experts: tuple[str, ...] = ()
    plain_experts: bool = False
    bare: tuple[str, ...] = ()
    by_rows: str = ""


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a checkpoint calls the parts that every decoder has."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    attention: str = "self_attn"
    recurrent: str = "linear_attn"
    mlp: str = "mlp"  # or "", where its matrices are the layer's
    shared: str = "shared_experts"
    shared_in_mlp: bool = True  # or beside it
    gate_up: str = _GATE_UP  # where the two are one matrix
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    by_columns: bool = False  # a linear layer's matrix is stored the other way round
    multiplies_apart: bool = False  # gate and up of a dense MLP by themselves
    attends_apart: bool = False  # ... and queries, keys and values
    interleaves: bool = False  # rows of gate and up take turns, in experts too
    packs_groups: bool = False  # each KV head in it stands behind those that ask it
    packed_qkv: str | None = None  # the one matrix of queries, keys and values, where there are no three
    attention_out: str = "o_proj"
    latent_gate: str = "g_proj"
    value_gate: str = "gate_proj"  # of what heads answer
    state_gate: str = "g_proj"  # ... of what lightning attention does
    state_norm: str = "g_norm"
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    head: str = "lm_head"
    entry_norm: str = "input_layernorm"  # of attention and an MLP beside each other
    crossing: str = "cross_attn"  # attention to images
    the_layer: str | None = None  # by which lists are asked for it, where there is one alone
    the_head: str = "lm_head"  # ... and for the head
    served: ServedNames | None = None  # a checkpoint's own

    def listed(self, parts: Sequence[str]) -> list[str]:
        """What lists call these, which are run as one: some checkpoints have one matrix of gate and up."""
        stem = parts[0].removesuffix(self.gate)
        packs = self.gate_up != _GATE_UP and [*parts] == [f"{stem}{self.gate}", f"{stem}{self.up}"]
        return [f"{stem}{self.gate_up}"] if packs else [*parts]


def within(module: str, name: str) -> str:
    """What stands in a module, or, where its name is empty, in what that stands in."""
    return f"{module}.{name}" if module and name else module or name


USUAL = TensorNames()
# The module of the experts, where it is none of the usual
EXPERTS_IN = dict.fromkeys(
    (
        *("mixtral", "mixtral_quant", "minimax_m2", "phimoe"),
        *("granitemoe", "granitemoehybrid", "granitemoeshared", "granitemoe_swa"),
    ),
    ".block_sparse_moe",
)
EXPERTS_IN["gemma4_text"] = ".moe"
EXPERTS_IN["grok"] = ".block_sparse_moe"
