"""XVERSE of experts: a DeepSeek-MoE under other names, every layer of experts as wide as its file's MLP.

Its files call themselves xverse, as those without experts do: the architecture tells. Nobody here has read
its config class.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import AttentionConfig, MoEConfig

NAME, ARCHITECTURE = "xverse_moe", "XverseMoeForCausalLM"
_TOLD = (
    *("intermediate_size", "max_position_embeddings", "rms_norm_eps"),
    *("num_experts", "num_shared_experts", "moe_top_k"),
)


def _xverse_moe(f: Fields) -> ModelConfig:
    """srt/models/xverse_moe.py, whose head is its own, whatever is said."""
    for name in _TOLD:
        if not f.tells(name):
            f.cannot(f"{name} is missing: what it is then, the checkpoint's own class says")
    f.only("hidden_act", "silu")
    for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        f.only(name, False)
    moe = _routed(f) if f.has("num_experts") else None
    kinds = everywhere(f, "full"), everywhere(f, "dense" if moe is None else "moe")
    found = model(f, {"full": _attention(f)}, *kinds, activation="silu", moe=moe)
    return replace(found, model_type=NAME)


def _attention(f: Fields) -> AttentionConfig:
    count = f.size("num_attention_heads")
    if f.size("hidden_size") % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("head_dim", f.size("hidden_size") // count)
    found = heads(f)
    kind = "default" if found.rope is None else found.rope.parameters["rope_type"]
    if kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: which ropes the class of its checkpoints has is not known")
    return found


def _routed(f: Fields) -> MoEConfig:
    if f.get("num_shared_experts") == 0:
        f.cannot("num_shared_experts is 0: SGLang makes them of no columns, and null is what says none")
    inner = f.size("intermediate_size")
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("moe_top_k"),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("num_shared_experts"),
        renormalize=f.flag("norm_topk_prob"),
    )


FAMILIES = (
    Family(
        NAME,
        _xverse_moe,
        {"intermediate_size": 11008, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "moe_top_k": 1},
    ),
)
