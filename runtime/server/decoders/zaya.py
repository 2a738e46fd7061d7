"""Zaya, as SGLang has it: a layer attends, or is one of experts; residuals are scaled, and routers chained.

Its files of the first kind, of twice as many layers as transformers counts, are those that SGLang reads.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, layered
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig, RopeConfig
from runtime.server.recurrent import TwiceConvolvedConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(norm="model.final_norm", recurrent="self_attn", mlp="zaya_block")
_LISTS = ("zaya_layers", "cca_num_q_heads", "num_query_groups_list", "ffn_hidden_size_list")
_ALWAYS = (*("zaya_use_mod", "zaya_use_eda", "zaya_high_prec", "scale_residual_merge", "gated_linear_unit"),)
_OF_TRANSFORMERS = (
    *("layer_types", "moe_intermediate_size", "num_experts_per_tok", "rms_norm_eps", "router_hidden_size"),
    *("hidden_act", "rope_parameters"),
)


def _zaya(f: Fields) -> ModelConfig:
    for name in (*_LISTS, *_OF_TRANSFORMERS):
        if f.has(name):
            f.cannot(f"{name} is told, which SGLang does not read as it is meant: see ZAYA1-8B-legacy")
    f.always(dict.fromkeys(_ALWAYS, True))
    for name in ("lm_head_bias", "clamp_temp", "rope_scaling"):
        f.only(name, False)
    for name in ("sliding_window", "swa_layers", "swa_rotary_base"):
        f.only(name)
    f.only("normalization", "RMSNorm")
    f.only("activation_func", "swiglu")
    f.only("num_query_groups", f.size("num_key_value_heads"))
    layers = f.size("num_hidden_layers")
    bias, count, kv = f.flag("attention_bias"), f.size("num_attention_heads"), f.size("num_key_value_heads")
    width = f.size("head_dim" if f.has("head_dim") else "kv_channels")
    if count % kv:
        raise ConfigError(f"config.json: {count} heads are not evenly those of {kv} KV heads")
    attention = heads(f, width=width, rope=_rope(f, width), bias=bias, output_bias=bias)
    if kv * width % 2:
        f.cannot(f"{kv} KV heads of {width} have no half")
    kernels = f.size("cca_time0"), f.size("cca_time1")
    if min(kernels) < 2:
        f.cannot(f"cca_time0 and cca_time1 are {kernels}: this runtime convolves two tokens and more")
    return layered(
        f,
        {"full": attention},
        ["none" if layer % 2 else "full" for layer in range(layers)],
        ["moe" if layer % 2 else "none" for layer in range(layers)],
        rms_eps=f.number("norm_epsilon"),
        norms="scaled",
        recurrent=TwiceConvolvedConfig(count + kv, width, f.size("hidden_size"), kernels),
        recurs_beside=True,
        moe=_routed(f) if layers > 1 else None,
        names=_NAMES,
    )


def _rope(f: Fields, width: int) -> RopeConfig:
    """By what stands in the file itself; a base is cut to whole numbers."""
    theta, share = float(int(f.number("rope_theta"))), f.number("partial_rotary_factor")
    turned = int(width * share)
    if turned < 2 or turned % 2 or turned > width or theta < 1:
        raise ConfigError(f"config.json: partial_rotary_factor is {share}, rope_theta {theta}: nothing turns")
    parameters = {"rope_type": "default", "rope_theta": theta}
    return RopeConfig(turned, theta, f.size("max_position_embeddings"), parameters=parameters)


def _routed(f: Fields) -> MoEConfig:
    """The last of those that a router scores answers what it is given. A width is told of gates and ups."""
    f.only("moe_router_topk", 1)
    width = f.size("zaya_mlp_expansion")
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=1,
        intermediate_size=f.size("ffn_hidden_size") // 2,
        renormalize=False,
        correction_bias=True,
        zero_experts=1,
        router_width=width,
    )


FAMILIES = (
    Family(
        "zaya",
        _zaya,
        {
            **dict.fromkeys(_ALWAYS, True),
            "vocab_size": 262272,
            "hidden_size": 2048,
            "ffn_hidden_size": 4096,
            "num_hidden_layers": 80,
            "num_experts": 16,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "num_query_groups": 2,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "rope_theta": 1000000.0,
            "partial_rotary_factor": 0.5,
            "moe_router_topk": 1,
            "zaya_mlp_expansion": 256,
            "cca_time0": 2,
            "cca_time1": 2,
        },
    ),
)
