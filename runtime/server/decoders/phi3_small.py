"""Phi 3 small as SGLang has it: norms by a mean, biases everywhere, gates that open by a quick gelu beside
ups of which each counts one more, and numbers of muP.

srt/models/phi3_small.py: each layer sees all tokens, whatever a file says of blocks, and gates have no limit.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Multipliers, RopeConfig
from runtime.server.tensor_names import ServedNames, TensorNames

# srt/models/phi3_small.py gives two of attention the names that a Llama's have.
_PATHS = ((r"self_attn\.query_key_value$", "self_attn.qkv_proj"), (r"self_attn\.dense$", "self_attn.o_proj"))
_NAMES = TensorNames(
    norm="model.final_layernorm",
    packed_qkv="query_key_value",
    packs_groups=True,
    attention_out="dense",
    gate_up="up_proj",
    interleaves=True,
    served=ServedNames(paths=_PATHS),
)
_PADDED = 256
_INNER, _TIMES = "ff_intermediate_size", "ff_dim_multiplier"


def _phi3_small(f: Fields) -> ModelConfig:
    f.only("hidden_act", "gegelu")
    f.only("intermediate_size")  # which its config class makes of others
    block = f.size("blocksparse_block_size")
    f.only("blocksparse_triton_kernel_block_size", block)
    scale = f.get("mup_embedding_multiplier")
    embedding = 0.0 if scale is None else f.number("mup_embedding_multiplier")
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=f.number("layer_norm_epsilon"),
        intermediate_size=_inner(f),
        mean_norms=True,
        norm_biases=True,
        mlp_biases=True,
        activation="gegelu",
        multipliers=Multipliers(embedding=embedding if embedding > 0 else 1.0),
        names=_NAMES,
    )


def _attention(f: Fields) -> AttentionConfig:
    count, kv_count = f.size("num_attention_heads"), f.size("num_key_value_heads")
    width = f.size("hidden_size") // count
    f.only("head_dim", width)
    if count % kv_count:
        raise ConfigError(f"config.json: {count} heads cannot be divided among {kv_count} of keys and values")
    for name in ("rope_scaling", "rope_parameters"):
        f.only(name)
    f.only("rope_position_scale", 1.0, 1)
    base = f.positive("rope_embedding_base")
    told = {"rope_type": "default", "rope_theta": base}
    rope = RopeConfig(width, base, f.size("max_position_embeddings"), parameters=told)
    share = f.positive("mup_attn_multiplier") / width if f.flag("mup_use_scaling") else width**-0.5
    return heads(f, width=width, rope=rope, scale=share, bias=True, output_bias=True)


def _inner(f: Fields) -> int:
    told, times, is_padded = f.size_or_none(_INNER), f.size_or_none(_TIMES), f.flag("gegelu_pad_to_256")
    if (told is None) == (times is None):
        raise ConfigError(f"config.json: {_INNER} is {told}, and {_TIMES} {times}: one of them is needed")
    inner = told or (times or 0) * (f.size("hidden_size") // 3) * 2
    return -(-inner // _PADDED) * _PADDED if times and is_padded else inner


FAMILIES = (
    Family(
        "phi3small",
        _phi3_small,
        {
            "num_key_value_heads": 8,
            "hidden_act": "gegelu",
            "max_position_embeddings": 8192,
            "layer_norm_epsilon": 1e-5,
            "rope_embedding_base": 10**6,
            "rope_position_scale": 1.0,
            _INNER: 14336,
            "gegelu_pad_to_256": True,
            "blocksparse_block_size": 64,
            "blocksparse_triton_kernel_block_size": 64,
            "mup_use_scaling": True,
            "mup_embedding_multiplier": 10.0,
            "mup_attn_multiplier": 1.0,
            "tie_word_embeddings": True,
        },
    ),
)
