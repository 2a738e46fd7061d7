"""Granite's experts beside a shared MLP, and Granites of either kind some of whose layers see a window, have
sinks or turn nothing."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.granite import COMMON, multipliers
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, routed
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(shared="shared_mlp", shared_in_mlp=False, gate_up="input_linear", down="output_linear")


def _granitemoeshared(f: Fields) -> ModelConfig:
    return _model(f, {"full": _attention(f)}, everywhere(f, "full"))


def _granitemoe_swa(f: Fields) -> ModelConfig:
    return _model(f, *_behind_windows(f))


def _granite_swa(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    return model(f, *_behind_windows(f), everywhere(f, "dense"), multipliers=multipliers(f))


def _behind_windows(f: Fields) -> tuple[dict[str, AttentionConfig], list[str]]:
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or ["sliding" if layer % 4 else "full" for layer in range(layers)]
    found, thetas = replace(_attention(f), sinks=True), _thetas(f, layers)
    window = f.size("sliding_window") if "sliding" in kinds else None
    attention = {}
    for kind in dict.fromkeys(kinds):
        own = {theta for theta, one in zip(thetas, kinds, strict=False) if one == kind}
        if len(own) > 1:
            f.cannot(f"layer_rope_theta is {sorted(own)} in layers of one kind: here it is one of each")
        rope = _based(found.rope, max(own)) if own else found.rope
        attention[kind] = replace(found, rope=rope, window=window if kind == "sliding" else None)
    return attention, kinds


def _model(f: Fields, attention: dict[str, AttentionConfig], kinds: list[str]) -> ModelConfig:
    moe = routed(f, "intermediate_size", shared_intermediate_size=f.count("shared_intermediate_size"))
    names = _NAMES if moe.shared_intermediate_size else TensorNames()
    return model(f, attention, kinds, everywhere(f, "moe"), moe=moe, names=names, multipliers=multipliers(f))


def _attention(f: Fields) -> AttentionConfig:
    """srt/models/granitemoe.py divides the hidden size, adds no biases, and stretches no rope."""
    f.only("attention_bias", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    found = heads(f, scale=float(f.number("attention_multiplier")))
    assert found.rope is not None
    stretched = found.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: SGLang stretches no rope of this family")
    return found


def _thetas(f: Fields, layers: int) -> list[float]:
    """Of each layer, nought of those that turn nothing; none at all: the rope's."""
    listed = f.get("layer_rope_theta")
    if listed is None:
        return []
    if not isinstance(listed, list) or len(listed) != layers:
        said = repr(listed)[:60]
        raise ConfigError(f"config.json: layer_rope_theta is {said}: a list of {layers} numbers is needed")
    found = [checked_number("layer_rope_theta", one) for one in listed]
    if min(found) < 0:
        raise ConfigError(f"config.json: layer_rope_theta has {min(found)}: none is below 0")
    return found


def _based(rope: RopeConfig | None, theta: float) -> RopeConfig | None:
    if rope is None or theta == 0:
        return None
    return replace(rope, theta=theta, parameters={**rope.parameters, "rope_theta": theta})


_EXPERTS = {**COMMON, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 0}
_SWA = {
    **COMMON,
    "intermediate_size": 8192,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "sliding_window": 128,
}
FAMILIES = (
    Family("granitemoeshared", _granitemoeshared, _EXPERTS),
    Family("granitemoe_swa", _granitemoe_swa, {**_EXPERTS, "sliding_window": 128}),
    Family("granite_swa", _granite_swa, _SWA),
)
