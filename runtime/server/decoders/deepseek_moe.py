"""DeepSeek-MoE, which was before V2: heads of keys, and experts by a plain softmax behind dense layers.

Its config class is a file of its checkpoints. DeepSeek-OCR's language model is the same, a section of a
DeepSeek-V2 by its fields, without latents. What a class does not have is as srt/models/deepseek.py has it.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, which
from runtime.server.layer_config import AttentionConfig, MoEConfig

_VALUES = 128
_TURNED = ("default", "linear", "dynamic")  # by the class of its checkpoints


def _deepseek(f: Fields) -> ModelConfig:
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("use_mla", False)
    f.only("tie_word_embeddings", False)  # srt/models/deepseek.py has a head of its own, whatever is said
    first, every = f.count("first_k_dense_replace"), f.size("moe_layer_freq", 1)
    routes = f.has("n_routed_experts")
    kinds = which(f.size("num_hidden_layers"), lambda i: routes and i >= first and i % every == 0)
    moe = _routed(f) if "moe" in kinds else None
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), kinds, moe=moe)


def _attention(f: Fields) -> AttentionConfig:
    count = f.size("num_attention_heads")
    if f.size("hidden_size") % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    width = f.size("hidden_size") // count
    f.only("head_dim", width)
    # DeepSeek-OCR's section says 0, of which SGLang makes 128
    f.only("v_head_dim", width, *([0] if f.tells("use_mla") and width == _VALUES else []))
    found = heads(f)
    kind = "default" if found.rope is None else found.rope.parameters["rope_type"]
    if kind not in _TURNED:
        f.cannot(f"rope_type is {repr(kind)[:60]}: the class of its checkpoints has no such rope")
    return found


def _routed(f: Fields) -> MoEConfig:
    f.only("scoring_func", "softmax")
    f.only("topk_method", "greedy")
    f.only("routed_scaling_factor", 1.0, 1)  # which srt/models/deepseek.py does not read
    if not f.has("num_experts_per_tok"):
        f.cannot("num_experts_per_tok is missing")
    if f.get("n_shared_experts") == 0:
        f.cannot("n_shared_experts is 0: SGLang makes them of no columns, and null is what says none")
    top_k, renormalize = f.size("num_experts_per_tok", 1), f.flag("norm_topk_prob")
    if renormalize and top_k == 1:
        f.cannot("norm_topk_prob is True beside one expert: its own class leaves that share as it is")
    inner = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size("n_routed_experts"),
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("n_shared_experts"),
        renormalize=renormalize,
    )


_OWN = {
    "intermediate_size": 11008,
    "moe_intermediate_size": 1407,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}

FAMILIES = (Family("deepseek", _deepseek, _OWN),)
