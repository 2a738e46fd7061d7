"""Gemma 4: keys, values and a rope by kind of layer, values that may be keys, experts beside a dense MLP.

E2B's and E4B's layers have inputs of their own, and the last ones the keys and values of earlier ones.
DiffusionGemma, all of whose layers have experts, writes a canvas of tokens at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runtime.server.bounds import MODEL, check_size, is_number
from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, shared_keys
from runtime.server.errors import ConfigError
from runtime.server.layer_config import (
    AttentionConfig,
    LayerInputsConfig,
    MoEConfig,
    Multipliers,
    RopeConfig,
)
from runtime.server.tensor_names import TensorNames

_WORDS = {kind: word for word, kind in SLIDES.items()}
_EVERY = 6  # of layers, the last sees everything
_UNSAID = "unsaid"  # null is something else: that no layer differs
_OF_EXPERTS = ("num_experts", "top_k_experts", "moe_intermediate_size")
_SHAPE = ("head_dim", "num_key_value_heads")
_CANVAS_NAMES = TensorNames(
    layers="model.decoder.layers", embedding="model.decoder.embed_tokens", norm="model.decoder.norm"
)
_ROPES: Mapping[str, Mapping[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
}


def _gemma4(f: Fields) -> ModelConfig:
    f.only("hidden_activation", "gelu_pytorch_tanh")
    f.only("use_bidirectional_attention", "vision")  # of images alone
    for name in _OF_EXPERTS:
        f.get(name)
    kinds = _kinds(f)
    key_layers = shared_keys(f, kinds)
    is_routed = f.flag("enable_moe_block")
    shapes = _shapes(f, kinds)
    return model(
        f,
        {kind: _attention(f, kind, *shape) for kind, shape in shapes.items()},
        kinds,
        everywhere(f, "moe" if is_routed else "dense"),
        moe=_routed(f) if is_routed else None,
        norms="sandwich",
        activation="gelu_tanh",
        scales_layers=True,
        key_layers=key_layers,
        mlp_sizes=_mlp_sizes(f, key_layers),
        layer_inputs=_inputs(f),
        embeds_whole=True,
        multipliers=Multipliers(
            embedding=f.size("hidden_size") ** 0.5, logit_cap=f.positive_or_none("final_logit_softcapping")
        ),
    )


def _diffusion(f: Fields) -> ModelConfig:
    """srt/models/gemma4_diffusion.py: of a prompt, which it encodes as a Gemma 4 does."""
    f.only("hidden_activation", "gelu_pytorch_tanh")
    f.only("use_bidirectional_attention", "vision")
    f.only("attention_bias", False)  # prompts and canvases have weights in common, and biases of their own
    for name in ("tie_word_embeddings", "attention_k_eq_v"):
        f.only(name, True)
    kinds = _kinds(f)
    return model(
        f,
        {kind: _attention(f, kind, *shape) for kind, shape in _shapes(f, kinds).items()},
        kinds,
        everywhere(f, "moe"),
        moe=_routed(f),
        norms="sandwich",
        activation="gelu_tanh",
        scales_layers=True,
        multipliers=Multipliers(
            embedding=f.size("hidden_size") ** 0.5, logit_cap=f.positive_or_none("final_logit_softcapping")
        ),
        canvas=f.size("canvas_length"),
        names=_CANVAS_NAMES,
    )


def _kinds(f: Fields) -> list[str]:
    """The last one sees everything, whatever is told of it."""
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or ["sliding" if (i + 1) % _EVERY else "full" for i in range(layers)]
    return [*kinds[:-1], "full"]


def _mlp_sizes(f: Fields, key_layers: tuple[int, ...]) -> tuple[int, ...]:
    """Layers without keys of their own may be twice as wide."""
    width, doubles = f.size("intermediate_size"), f.flag("use_double_wide_mlp")
    if not doubles or not key_layers:
        return ()
    return tuple(width if layer == source else 2 * width for layer, source in enumerate(key_layers))


def _inputs(f: Fields) -> LayerInputsConfig | None:
    width, vocab = f.count("hidden_size_per_layer_input"), f.size("vocab_size_per_layer_input")
    return LayerInputsConfig(vocab, width) if width else None


def _shapes(f: Fields, kinds: list[str]) -> dict[str, tuple[int, int]]:
    """A head's width and the KV heads, by kind of layer."""
    by_layer = _by_layer(f, kinds)
    found: dict[str, tuple[int, int]] = {}
    for layer, kind in enumerate(kinds):
        told = by_layer.get(layer, {})
        width, count = (_size(f, told, name) for name in _SHAPE)
        if found.setdefault(kind, (width, count)) != (width, count):
            f.cannot(f"per_layer_config of layer {layer} is not that of others of its kind")
    return found


def _by_layer(f: Fields, kinds: list[str]) -> dict[int, Mapping[str, Any]]:
    """As transformers writes it, or as checkpoints tell it of all layers that see everything."""
    width, count = f.get("global_head_dim"), f.get("num_global_key_value_heads")
    keys_are_values = f.flag("attention_k_eq_v")
    if not keys_are_values and count not in (None, f.get("num_key_value_heads")):
        f.cannot(
            f"num_global_key_value_heads is {repr(count)[:60]} where keys are no values: releases differ"
        )
    if f.get("per_layer_config") == _UNSAID:
        told = {"head_dim": width} | ({"num_key_value_heads": count} if keys_are_values and count else {})
        return {layer: told for layer, kind in enumerate(kinds) if kind == "full"}
    return dict(_numbered(f, f.section("per_layer_config"), len(kinds)))


def _numbered(f: Fields, section: Mapping[str, Any], layers: int) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for name, told in section.items():
        where = f"config.json: per_layer_config: {repr(name)[:60]}"
        number = int(name) if isinstance(name, str) and is_number(name) else layers
        if number >= layers or not isinstance(told, Mapping):
            raise ConfigError(f"{where} is {repr(told)[:60]}: an object of one of {layers} layers is needed")
        others = [one for one in told if one not in _SHAPE]
        if others:
            f.cannot(f"per_layer_config tells {repr(others[0])[:60]}: this runtime reads {', '.join(_SHAPE)}")
        yield number, told


def _size(f: Fields, told: Mapping[str, Any], name: str) -> int:
    if name not in told:
        return f.size(name)
    value = told[name]
    if type(value) is not int or value < 1:
        shown = repr(value)[:60]
        raise ConfigError(f"config.json: {name} of a layer is {shown}: a positive whole number is needed")
    check_size(f"config.json: {name} of a layer", value, MODEL[name])
    return value


def _attention(f: Fields, kind: str, width: int, kv_count: int) -> AttentionConfig:
    bias, window = f.flag("attention_bias"), f.size("sliding_window")
    return heads(
        f,
        width=width,
        kv_count=kv_count,
        rope=_rope(f, kind, width),
        window=window if kind == "sliding" else None,
        scale=1.0,
        bias=bias,
        output_bias=bias,
        qk_norm="head",
        norms_values=True,
        keys_are_values=kind == "full" and f.flag("attention_k_eq_v"),
    )


def _rope(f: Fields, kind: str, width: int) -> RopeConfig:
    """Of each kind by itself; a proportional one turns the first so many of all pairs of a head."""
    word, whole = _WORDS[kind], f.section("rope_parameters")
    told = (_ROPES if f.get("rope_parameters") is None else whole).get(word)
    if not isinstance(told, Mapping):
        f.cannot(f"rope_parameters are not told of {word} by itself")
        told = _ROPES[word]
    theta = checked_number(f"rope_parameters: {word}: rope_theta", told.get("rope_theta"))
    if theta <= 0:
        raise ConfigError(f"config.json: rope_parameters: {word}: rope_theta is {theta}: it must be above 0")
    way, share = told.get("rope_type", "default"), told.get("partial_rotary_factor", 1.0)
    if way not in ("default", "proportional"):
        f.cannot(f"rope_type is {repr(way)[:60]}: this runtime computes default, proportional")
    part = checked_number(f"rope_parameters: {word}: partial_rotary_factor", share)
    if not 0 <= part <= 1 or (way == "default" and part != 1):
        f.cannot(f"partial_rotary_factor is {part}: layers by rope_type {way!r} turn no such share of a head")
        part = 1
    if told.get("factor", 1.0) != 1:
        f.cannot(
            f"rope_parameters: {word}: factor is {repr(told['factor'])[:60]}, which SGLang does not read"
        )
    if width % 2:
        f.cannot(f"heads of {word} are {width} wide, which are no pairs")
    turned = {"turned_pairs": int(width * part) // 2} if way == "proportional" else {}
    parameters = {"rope_type": way, "rope_theta": theta, **turned}
    return RopeConfig(width, theta, f.size("max_position_embeddings"), parameters=parameters)


def _routed(f: Fields) -> MoEConfig:
    """SGLang tells its kernels `gelu`, which is another than transformers' and takes as long."""
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("top_k_experts"),
        intermediate_size=f.size("moe_intermediate_size"),
        beside_dense=True,
        least_sum=0.0,
    )


_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "per_layer_config": _UNSAID,
}
FAMILIES = (
    Family(
        "gemma4_text",
        _gemma4,
        {
            **_DEFAULTS,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
            "num_kv_shared_layers": 0,
        },
    ),
    Family(
        "diffusion_gemma_text",
        _diffusion,
        {
            **_DEFAULTS,
            "final_logit_softcapping": 30.0,
            "attention_k_eq_v": True,
            "canvas_length": 256,
        },
    ),
)
