"""Nemotron-H and Nemotron 3: a layer is Mamba-2's, attention without positions, an MLP or experts."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.bounds import LAYERS, check_size
from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import TAKEN_AS_SILU, check_both, heads, layered, routed_by_sigmoid
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import MoEConfig
from runtime.server.recurrent import Mamba2Config
from runtime.server.tensor_names import TensorNames

LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}
# What mixes tokens in a layer, and what follows.
KINDS = {
    "mamba": ("recurrent", "none"),
    "attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "moe"),
}
_GROUPS = 8  # where a file tells none
_USUAL = ["mamba", "moe", "attention", "mlp"]
_NAMES = TensorNames(
    *("backbone.layers", "backbone.embeddings", "backbone.norm_f"),
    *("mixer", "mixer", "mixer"),
)


def _nemotron_h(f: Fields) -> ModelConfig:
    check_groups(f)
    kinds = _layers(f)
    return of_kinds(f, kinds, routed_beside_shared(f) if "moe" in kinds else None, _NAMES)


def check_groups(f: Fields) -> None:
    """SGLang's class makes states by one of two fields, and matrices by the other."""
    groups, other = f.size("n_groups"), f.size("mamba_n_groups", _GROUPS)
    if groups != other:
        f.cannot(f"n_groups is {groups}, and mamba_n_groups {other}, by which SGLang makes matrices")


def of_kinds(f: Fields, listed: list[str], moe: MoEConfig | None, names: TensorNames) -> ModelConfig:
    f.only("sliding_window")
    f.only("mlp_hidden_act", "relu2")
    f.only("mamba_hidden_act", *TAKEN_AS_SILU)
    f.only("mlp_bias", False)
    f.only("tie_word_embeddings", False)
    kinds = [KINDS[kind] for kind in listed]
    mixers, mlps = [mixer for mixer, _ in kinds], [mlp for _, mlp in kinds]
    check_both(f, mixers)
    return layered(
        f,
        {"full": heads(f, rope=None)},
        mixers,
        mlps,
        rms_eps=f.number("layer_norm_epsilon"),
        norms="alone",
        gated_mlps=False,
        recurrent=_mamba(f) if "recurrent" in mixers else None,
        moe=moe,
        names=names,
    )


def _layers(f: Fields) -> list[str]:
    """A list of words, or a letter a layer."""
    listed, pattern = f.get(f.spelled("layers_block_type", "layer_types")), f.get("hybrid_override_pattern")
    f.get("num_hidden_layers")  # as many as are told
    if listed is None:
        if not isinstance(pattern, str | None):
            raise ConfigError("config.json: hybrid_override_pattern is no text")
        listed = _USUAL if pattern is None else [LETTERS.get(letter, letter) for letter in pattern]
    if not isinstance(listed, list) or not listed:
        raise ConfigError("config.json: layers_block_type is no list of layers")
    check_size("config.json: the layers of layers_block_type", len(listed), LAYERS)
    kinds = [_WORDS.get(one, one) if isinstance(one, str) else one for one in listed]
    if kinds != listed:
        f.cannot(f"layers_block_type has {', '.join(_WORDS)}: SGLang knows {', '.join(KINDS)}")
    unknown = next((one for one in kinds if not isinstance(one, str) or one not in KINDS), None)
    if unknown is not None:
        raise Unsupported(f"config.json: a layer of {repr(unknown)[:60]}: here are {', '.join(KINDS)}")
    return kinds


def _mamba(f: Fields) -> Mamba2Config:
    conv_bias = f.spelled("mamba_conv_bias", "use_conv_bias")
    return Mamba2Config(
        num_heads=f.size("mamba_num_heads"),
        head_dim=f.size("mamba_head_dim"),
        num_groups=f.size("mamba_n_groups", _GROUPS),
        state_size=f.size("ssm_state_size"),
        conv_kernel=f.size(f.spelled("mamba_d_conv", "conv_kernel")),
        conv_bias=f.flag(conv_bias),
        bias=f.flag("use_bias"),
        least_step=f.number(f.spelled("mamba_dt_min", "time_step_min")),
        chunk=f.size(f.spelled("mamba_chunk_size", "chunk_size")),
    )


def routed_beside_shared(f: Fields) -> MoEConfig:
    f.only("n_shared_experts", 1)  # one, as wide as is told
    shared = f.size("moe_shared_expert_intermediate_size")
    return replace(
        routed_by_sigmoid(f), shared_intermediate_size=shared, latent_size=f.size_or_none("moe_latent_size")
    )


DEFAULTS = {
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "layer_norm_epsilon": 1e-5,
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": _GROUPS,
    "conv_kernel": 4,
    "use_conv_bias": True,
    "time_step_min": 0.001,
    "chunk_size": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "vocab_size": 131072,
    "hidden_size": 4096,
}

FAMILIES = (Family("nemotron_h", _nemotron_h, DEFAULTS),)
