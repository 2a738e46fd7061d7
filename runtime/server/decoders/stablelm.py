"""StableLM: a Llama whose norms take the mean away, and which turns a part of each head."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_SHARE = 0.25
_PLAIN = ("q_proj", "k_proj", "v_proj", "o_proj", "lm_head")  # srt/models/stablelm.py gives them no method
_NAMES = TensorNames(served=ServedNames(plain=_PLAIN))


def _stablelm(f: Fields) -> ModelConfig:
    for name in ("use_parallel_residual", "qk_layernorm", "tie_word_embeddings"):
        f.only(name, False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    eps, share = f.number("layer_norm_eps"), f.number("partial_rotary_factor", _SHARE)
    f.only("norm_eps", eps)  # which SGLang asks for first
    f.only("rope_pct", share)
    attention = heads(f, share=_SHARE, bias=f.flag("use_qkv_bias"))
    assert attention.rope is not None
    told = attention.rope.parameters["rope_type"]
    if told != "default":
        f.cannot(f"rope_type is {told!r}: SGLang stretches no rope of this family")
    if attention.rope.dim != int(attention.head_dim * share):
        f.cannot(
            f"rope_parameters turn {attention.rope.dim} values, SGLang {int(attention.head_dim * share)}"
        )
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=eps,
        mean_norms=True,
        norm_biases=True,
        names=_NAMES,
    )


FAMILIES = (
    Family(
        "stablelm",
        _stablelm,
        {
            "intermediate_size": 6912,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
            "layer_norm_eps": 1e-5,
        },
    ),
)
