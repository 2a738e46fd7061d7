"""What a GPT-2 and its like have in common: names of sizes, which their config classes also know by those of
other families, and what activates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from runtime.server.decoders.fields import HF, Fields

_USUAL = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
SMALL: Mapping[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "layer_norm_epsilon": 1e-5,
}
LARGE: Mapping[str, Any] = {
    **SMALL,
    "vocab_size": 50400,
    "n_positions": 2048,
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
}
_DEFAULTS = {"gpt2": SMALL, "gpt_bigcode": SMALL, "gptj": LARGE}
# get_act_fn of srt/layers/activation.py
GELUS: Mapping[str, Literal["gelu", "gelu_new", "gelu_tanh"]] = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


def as_usual(f: Fields) -> Fields:
    """By the names that sizes of other families have."""
    found = {usual: f.size(f.spelled(own, usual)) for own, usual in _USUAL.items()}
    for own, usual in _USUAL.items():
        if f.tells(usual) and f.get(usual) != found[usual]:
            f.cannot(f"{usual} is {repr(f.get(usual))[:60]} beside {own}, which is {found[usual]}")
    hidden, count = found["hidden_size"], found["num_attention_heads"]
    if hidden % count:
        f.cannot(f"n_embd is no multiple of n_head, which is {count}")
    f.only("head_dim", hidden // count)
    return f.beside({**found, "intermediate_size": f.size("n_inner", 4 * hidden)})


def with_usual(hf: HF) -> HF:
    """A file, and what it tells by these names by the others, too."""
    defaults = _DEFAULTS.get(str(hf.get("model_type")))
    if defaults is None:
        return hf
    return {**{usual: hf.get(own, defaults[own]) for own, usual in _USUAL.items()}, **hf}
