"""Gemma 3n: streams that each layer predicts and corrects, gates most of which are closed, inputs of each
layer, and keys that the last layers share: srt/models/gemma3n_causal.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, shared_keys
from runtime.server.decoders.rope import one_share, read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, LayerInputsConfig, Multipliers, RopeConfig
from runtime.server.residual_config import PredictionsConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_EVERY = 5  # of layers, the last sees everything
_CLOSED, _CLOSING = 0.95, 10  # as many gates, of the first so many layers, where there are more
_OF_A_KIND = {kind: word for word, kind in SLIDES.items()}
_THETAS = {"full": ("rope_theta", 1e6), "sliding": ("rope_local_base_freq", 10000.0)}


def _gemma3n(f: Fields) -> ModelConfig:
    f.only("hidden_activation", "gelu_pytorch_tanh")
    f.always({"tie_word_embeddings": True})  # SGLang multiplies by the embedding whatever a file says
    hidden, sizes = f.size("hidden_size"), _mlp_sizes(f)
    if hidden % f.size("num_attention_heads"):
        raise ConfigError(
            f"config.json: hidden_size is {hidden}, no multiple of {f.get('num_attention_heads')} heads"
        )
    kinds = _kinds(f)
    return model(
        f.beside({"intermediate_size": max(sizes)}),
        {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        everywhere(f, "dense"),
        norms="sandwich",
        activation="gelu_tanh",
        key_layers=_key_layers(f, kinds),
        mlp_sizes=sizes,
        caps=tuple(Caps(closed=share) for share in _closed(f)),
        names=TensorNames(served=ServedNames()),
        predictions=_predictions(f),
        layer_inputs=LayerInputsConfig(
            f.size("vocab_size_per_layer_input"), f.size("hidden_size_per_layer_input"), gathered=True
        ),
        embeds_whole=True,
        multipliers=Multipliers(embedding=hidden**0.5, logit_cap=f.positive("final_logit_softcapping")),
    )


def _mlp_sizes(f: Fields) -> tuple[int, ...]:
    """One for all layers, or each layer's."""
    told, layers = f.get("intermediate_size"), f.size("num_hidden_layers")
    listed = told if isinstance(told, list) else [told] * layers
    if len(listed) != layers:
        raise ConfigError(f"config.json: intermediate_size has {len(listed)} numbers for {layers} layers")
    return tuple(f.checked_size("intermediate_size", one) for one in listed)


def _kinds(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    return told or ["sliding" if (i + 1) % _EVERY else "full" for i in range(layers)]


def _key_layers(f: Fields, kinds: list[str]) -> tuple[int, ...]:
    """SGLang takes the last layer that has keys for one that sees everything, and the one before it for one
    behind a window."""
    found = shared_keys(f, kinds)
    first = next((layer for layer, source in enumerate(found) if source < layer), len(found))
    taken = {"full": first - 1, "sliding": first - 2}
    for layer in range(first, len(found)):
        if found[layer] != taken[kinds[layer]]:
            f.cannot(
                f"num_kv_shared_layers: {_OF_A_KIND[kinds[layer]]} shares keys of layer {found[layer]}, "
                f"and in SGLang those of layer {taken[kinds[layer]]}"
            )
    return found


def _closed(f: Fields) -> list[float]:
    told, layers = f.get("activation_sparsity_pattern"), f.size("num_hidden_layers")
    if told is None:
        closing = _CLOSING if layers > _CLOSING else 0
        return [_CLOSED] * closing + [0.0] * (layers - closing)
    if not isinstance(told, list) or len(told) != layers:
        raise ConfigError(
            f"config.json: activation_sparsity_pattern is {repr(told)[:60]}: "
            f"a list of {layers} numbers is needed"
        )
    shares = [checked_number("activation_sparsity_pattern", one) for one in told]
    if not all(0 <= share < 1 for share in shares):
        raise ConfigError(
            f"config.json: activation_sparsity_pattern is {repr(told)[:60]}: "
            "each number is at least 0 and below 1"
        )
    return shares


def _predictions(f: Fields) -> PredictionsConfig:
    count, active = f.size("altup_num_inputs"), f.count("altup_active_idx")
    if active >= count:
        raise ConfigError(f"config.json: altup_active_idx is {active} of {count} altup_num_inputs")
    return PredictionsConfig(count, active, f.size("laurel_rank"), f.flag("altup_correct_scale"))


def _attention(f: Fields, kind: str) -> AttentionConfig:
    bias, window = f.flag("attention_bias"), f.size("sliding_window")
    return heads(
        f,
        width=f.size("head_dim"),
        rope=_rope(f, kind),
        window=window if kind == "sliding" else None,
        scale=1.0,
        bias=bias,
        output_bias=bias,
        qk_norm="head",
        norms_values=True,
    )


def _rope(f: Fields, kind: str) -> RopeConfig:
    """Of each kind by itself; SGLang stretches none behind a window, and ends at some of the others."""
    whole, word, (field, theta) = f.section("rope_parameters"), _OF_A_KIND[kind], _THETAS[kind]
    f.only("rope_scaling")
    one_share(f, 1.0)
    strange = next((name for name in whole if name not in SLIDES), None)
    if strange is not None:
        f.cannot(f"rope_parameters tell {repr(strange)[:60]} of no kind of layers")
    told = whole.get(word) or {}
    if not isinstance(told, Mapping):
        raise ConfigError(f"config.json: rope_parameters: {word} is no object")
    if told.get("rope_type", "default") != "default":
        f.cannot(f"rope_type of {word} is {repr(told['rope_type'])[:60]}: this runtime computes 'default'")
    return read_rope_alone(f, {"rope_theta": f.number(field, theta), **told}, f.size("head_dim"))


_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262400,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "final_logit_softcapping": 30.0,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "altup_active_idx": 0,
    "altup_correct_scale": True,
    "altup_num_inputs": 4,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
}
FAMILIES = (Family("gemma3n_text", _gemma3n, _DEFAULTS),)
