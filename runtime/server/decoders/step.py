"""Step 3.5: more heads behind windows than elsewhere, a gate a head, some layers' gates and ups capped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import MLPS, SLIDES, as_counted, everywhere, heads, model, which
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, MoEConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(shared="share_expert", shared_in_mlp=False)
_WORDS = {kind: word for word, kind in SLIDES.items()}
_ONE_WAY: Mapping[str, Any] = {
    "use_head_wise_attn_gate": True,
    "use_moe_router_bias": True,
    "moe_router_activation": "sigmoid",
    "norm_expert_weight": True,
    "zero_centered": True,
    "gating": True,
    "use_bidirectional_attention": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}


def _step3p5(f: Fields) -> ModelConfig:
    for name, value in _ONE_WAY.items():
        f.only(name, value)
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or everywhere(f, "full")
    return model(
        f,
        {kind: _attention(f, kinds, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        _mlps(f, layers),
        moe=_experts(f),
        caps=_caps(f, layers),
        centred_norms=True,
        whole_embedding=True,
        names=_NAMES,
    )


def _experts(f: Fields) -> MoEConfig:
    return MoEConfig(
        num_experts=f.size(f.spelled("n_routed_experts", "moe_num_experts", "num_local_experts")),
        top_k=f.size(f.spelled("num_experts_per_tok", "moe_top_k")),
        intermediate_size=f.size("moe_intermediate_size"),
        shared_intermediate_size=f.size(f.spelled("share_expert_dim", "share_expert_dims")),
        scoring="sigmoid",
        correction_bias=True,
        routed_scaling_factor=f.number("moe_router_scaling_factor", 1.0),
        routes_in_fp32=f.flag("need_fp32_gate"),
    )


def _mlps(f: Fields, layers: int) -> list[str]:
    listed = f.get("moe_layers_enum")
    if listed is None:
        f.cannot("moe_layers_enum is missing: SGLang asks for it")
        return f.per_layer("mlp_layer_types", layers, MLPS) or which(layers, lambda i: i >= 3)
    words = listed.split(",") if isinstance(listed, str) else listed
    if not isinstance(words, list) or not all(str(one).strip().isdecimal() for one in words):
        raise ConfigError(f"config.json: moe_layers_enum is {repr(listed)[:60]}: layers are needed, as 3,4,5")
    sparse = {int(one) for one in words}
    return as_counted(f, "mlp_layer_types", MLPS, which(layers, lambda i: i in sparse), "moe_layers_enum")


def _caps(f: Fields, layers: int) -> tuple[Caps, ...]:
    routed, others = (_numbers(f, name, layers) for name in ("swiglu_limits", "swiglu_limits_shared"))
    if any(limit < 0 for limit in (*routed, *others)):
        raise ConfigError("config.json: swiglu_limits, swiglu_limits_shared: a limit is below 0")
    if not any((*routed, *others)):
        return ()
    both = zip(routed or [0.0] * layers, others or [0.0] * layers, strict=True)
    return tuple(Caps(one or None, other or None) for one, other in both)


def _attention(f: Fields, kinds: list[str], kind: str) -> AttentionConfig:
    scale = f.positive("query_pre_attn_scalar", f.size("head_dim"))
    f.only("attention_bias", False)
    window = f.size_or_none("sliding_window")
    if kind == "sliding" and window is None:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    own = _sliding_heads(f, kinds)
    return heads(
        f,
        count=own if kind == "sliding" else None,
        kv_count=f.size(f.spelled("num_key_value_heads", "num_attention_groups")),
        rope=_rope(f, kinds, kind),
        scale=scale**-0.5,
        window=window if kind == "sliding" else None,
        qk_norm="head",
        head_gate=True,
    )


def _sliding_heads(f: Fields, kinds: list[str]) -> int:
    """Told in one of three ways, which must agree."""
    other, elsewhere = f.section("attention_other_setting"), f.size("num_attention_heads")
    apart = f.checked_size("num_attention_heads", other.get("num_attention_heads", elsewhere))
    count = f.size("num_sliding_attention_heads", apart)
    kv_heads = f.size(f.spelled("num_key_value_heads", "num_attention_groups"))
    if other.get("num_attention_groups", kv_heads) != kv_heads:
        f.cannot("attention_other_setting has KV heads of its own: here all layers have as many")
    told = {str(layer).lstrip("0") or "0": own for layer, own in f.section("per_layer_config").items()}
    plain = {"num_attention_heads": elsewhere}
    for layer, kind in enumerate(kinds if told else ()):
        if told.get(str(layer), plain) != ({"num_attention_heads": count} if kind == "sliding" else plain):
            f.cannot(f"per_layer_config of layer {layer} is not what num_sliding_attention_heads says")
    return count


def _rope(f: Fields, kinds: list[str], kind: str) -> RopeConfig:
    """Of each kind by itself, or, as published, a base and a share a layer."""
    word, told = _WORDS[kind], f.section("rope_parameters")
    parameters = told.get(word)
    if parameters is None:
        if told:
            f.cannot(f"rope_parameters are not told of {word} by itself")
        parameters = _published_rope(f, kinds, kind)
    return read_rope_alone(f, parameters, f.size("head_dim"), share=1.0)


def _published_rope(f: Fields, kinds: list[str], kind: str) -> dict[str, Any]:
    layers, first = len(kinds), kinds.index(kind)
    theta = f.get("rope_theta")
    bases = _numbers(f, "rope_theta", layers) if isinstance(theta, list) else [theta] * layers
    shares = _numbers(f, "partial_rotary_factors", layers) or [1.0] * layers
    for layer, one in enumerate(kinds):
        if one == kind and (bases[layer], shares[layer]) != (bases[first], shares[first]):
            f.cannot(f"rope_theta or partial_rotary_factors of layer {layer} are not those of layer {first}")
    stretched = f.section("rope_scaling") if kind == "full" else {}
    if stretched and f.get("yarn_only_types") not in (None, [_WORDS["full"]]):
        f.cannot("yarn_only_types names others than full_attention: here rope_scaling is of those alone")
    return {"rope_theta": bases[first], "partial_rotary_factor": shares[first], **stretched}


def _numbers(f: Fields, name: str, layers: int) -> list[float]:
    """A number a layer, null as 0; draft layers may follow."""
    listed = f.get(name)
    if not listed:
        return []
    if not isinstance(listed, list) or len(listed) < layers:
        raise ConfigError(f"config.json: {name} is {repr(listed)[:60]}: a list of {layers} numbers is needed")
    return [0.0 if one is None else checked_number(name, one) for one in listed[:layers]]


FAMILIES = (
    Family(
        "step3p5",
        _step3p5,
        {
            "intermediate_size": 11264,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 128000,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1280,
            "n_routed_experts": 288,
            "share_expert_dim": 1280,
            "rope_theta": 10000.0,
        },
    ),
)
