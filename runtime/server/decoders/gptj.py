"""GPT-J: attention and an MLP without a gate beside each other, behind a norm that takes the mean away; some
values of each head turn, neighbours by one angle, and the head has a bias."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.gpt_names import GELUS, LARGE, as_usual
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(
    layers="transformer.h",
    embedding="transformer.wte",
    norm="transformer.ln_f",
    entry_norm="ln_1",
    attention="attn",
    attention_out="out_proj",
    up="fc_in",
    down="fc_out",
)
_THETA = 10000.0


def _gptj(f: Fields) -> ModelConfig:
    """srt/models/gpt_j.py"""
    f.always({"tie_word_embeddings": False})
    f.only("rotary", True)
    f.only("activation_function", *GELUS)
    told = as_usual(f)
    return model(
        told,
        {"full": _attention(told)},
        everywhere(told, "full"),
        everywhere(told, "dense"),
        rms_eps=f.number("layer_norm_epsilon"),
        norms="parallel",
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation=GELUS.get(str(f.get("activation_function")), "gelu_new"),
        head_bias=True,
        names=_NAMES,
    )


def _attention(f: Fields) -> AttentionConfig:
    """transformers' class turns by one base, whatever a file says."""
    count, turned = f.size("num_attention_heads"), f.size("rotary_dim")
    width = f.size("hidden_size") // count
    f.only("num_key_value_heads", count)
    f.only("rope_theta", int(_THETA), _THETA)
    if turned % 2 or turned > width:
        f.cannot(f"rotary_dim is {turned}: SGLang turns pairs of a head's {width} values")
    told = {"rope_type": "default", "rope_theta": _THETA}
    longest = f.size("max_position_embeddings")
    return heads(f, rope=RopeConfig(turned, _THETA, longest, interleaved=True, parameters=told))


FAMILIES = (
    Family(
        "gptj",
        _gptj,
        {**LARGE, "rotary_dim": 64, "activation_function": "gelu_new", "tie_word_embeddings": False},
    ),
)
