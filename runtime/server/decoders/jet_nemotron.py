"""Jet-Nemotron: most layers forget by a gated delta rule, whose values are convolved by a token's own taps.

Its config class comes with SGLang, srt/configs/jet_nemotron.py, and says nothing of what a file leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig
from runtime.server.recurrent import DynamicDeltaConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(recurrent="self_attn")
_MIXERS = {"attn": "full", "swa": "sliding", "jet": "recurrent"}
_NEEDED = (
    *("num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "hidden_act"),
    *("tie_word_embeddings", "rope_theta", "layer_types", "efficient_attention_config"),
)
# JetBlockConfig is told each of these, and nothing else.
_OF_A_BLOCK = {
    *("mode", "expand_v", "num_heads", "head_dim", "norm_eps", "conv_size"),
    *("dconv_generator_reduction", "dconv_implementation"),
}


def _jet_nemotron(f: Fields) -> ModelConfig:
    for name in _NEEDED:
        if not f.has(name):
            raise ConfigError(f"config.json: {name} is missing: SGLang's config class has none")
    f.only("hidden_act", "silu")
    f.only("rope_scaling")
    layers, told = f.size("num_hidden_layers"), f.get("layer_types")
    kinds = f.per_layer("layer_types", layers, _MIXERS) or []
    if len(told) != layers:
        f.cannot(f"layer_types names {len(told)} layers, and num_hidden_layers is {layers}")
    if "recurrent" not in kinds or not {"full", "sliding"} & {*kinds}:
        f.cannot("layer_types has not both: this runtime has no server of states or of tokens alone")
    sections = f.section("efficient_attention_config")
    used = [kind for kind in ("full", "sliding") if kind in kinds] or ["full"]
    return model(
        f,
        {kind: _attention(f, _window(sections) if kind == "sliding" else None) for kind in used},
        kinds,
        ["dense"] * layers,
        activation="silu",
        norms="apart",
        names=_NAMES,
        recurrent=_block(f, _section(sections, "jet")),
    )


def _section(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    told = sections.get(name)
    if not isinstance(told, Mapping):
        raise ConfigError(
            f"config.json: efficient_attention_config: {name} is {told!r:.60}: an object is needed"
        )
    return told


def _window(sections: Mapping[str, Any]) -> int:
    """Tokens before one's own, as SGLang tells its attention."""
    told = _section(sections, "swa")
    return Fields.checked_size("sliding_window", told.get("window_size")) + 1


def _attention(f: Fields, window: int | None) -> AttentionConfig:
    """SGLang's class divides, whatever is told, and turns by whole bases."""
    count = f.size("num_attention_heads")
    width = f.size("hidden_size") // count
    if width and f.size("head_dim", width) != width:
        f.cannot(f"head_dim is {f.get('head_dim')}: SGLang's class has heads of {width}")
    base = f.number("rope_theta")
    if base != int(base):
        f.cannot(f"rope_theta is {base}: SGLang's class turns by whole numbers")
    rope = f.section("rope_parameters")
    if rope.get("rope_type", "default") != "default" or rope.get("rope_theta", base) != base:
        f.cannot(f"rope_parameters is {dict(rope)!r:.60}: SGLang's class turns by rope_theta alone")
    return heads(f, width=width, window=window, bias=True)


def _block(f: Fields, told: Mapping[str, Any]) -> DynamicDeltaConfig:
    for name in sorted(_OF_A_BLOCK - told.keys()):
        raise ConfigError(f"config.json: efficient_attention_config: jet has no {name}")
    for name in sorted(map(str, told.keys() - _OF_A_BLOCK)):
        f.cannot(f"efficient_attention_config: jet has {name[:60]}: SGLang's class ends at it")
    size = Fields.checked_size
    width, count = size("head_dim", told["head_dim"]), size("num_key_heads", told["num_heads"])
    values = int(width * checked_number("expand_v", told["expand_v"]))
    value_width = size("value_head_dim", values)
    narrow = count * value_width // size("dconv_generator_reduction", told["dconv_generator_reduction"])
    return DynamicDeltaConfig(
        num_heads=count,
        key_head_dim=width,
        value_head_dim=value_width,
        conv_kernel=size("conv_kernel", told["conv_size"]),
        generator_size=size("a generator's rows", narrow),
        norm_eps=_eps(told["norm_eps"]),
    )


def _eps(told: Any) -> float:
    """A file writes it as text."""
    try:
        return checked_number("norm_eps", float(told))
    except (TypeError, ValueError):
        raise ConfigError(f"config.json: norm_eps is {told!r:.60}: a number is needed") from None


FAMILIES = (Family("jet_nemotron", _jet_nemotron, {}),)
