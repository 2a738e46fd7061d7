"""Muse Spark: a residual in float32, gated against each answer, and experts of fewer columns whose answers
are normed one by one."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import MLPS, SLIDES, everywhere, heads, model
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers
from runtime.server.tensor_names import ServedNames, TensorNames

NAME = "muse_spark_text"
# srt/models/muse_spark.py tells no method to any matrix but experts'.
_SERVED = ServedNames(
    plain=(*(f"{one}_proj" for one in ("q", "k", "v", "o", "gate", "up", "down")), "lm_head")
)
_THETA, _EVERY, _LEAST_SUM = 500000.0, 4, 1e-15


def _muse_spark(f: Fields) -> ModelConfig:
    _check(f)
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or [
        "sliding" if slides else "full" for slides in _slide(layers)
    ]
    mlps = f.per_layer("mlp_layer_types", layers, MLPS) or everywhere(f, "moe")
    return model(
        f,
        _attention(f, kinds),
        kinds,
        mlps,
        moe=_routed(f) if "moe" in mlps else None,
        norms="gated",
        names=TensorNames(served=_SERVED),
        centred_norms=True,
        last_norm_whole=True,
        answer_eps=f.number("post_norm_eps"),
        gate_temperature=f.positive("residual_gate_temperature"),
        norms_embedding=True,
        logits_in_fp32=True,
        multipliers=Multipliers(
            logits=f.number("output_multiplier"), logit_cap=f.positive_or_none("final_logit_softcapping")
        ),
    )


def _slide(layers: int) -> list[bool]:
    return [(layers - 1 - layer) % _EVERY != 0 for layer in range(layers)]


def _check(f: Fields) -> None:
    f.only("attention_bias", False)
    f.only("tie_word_embeddings", False)  # SGLang goes by the text's, and transformers by the whole file's
    f.only("num_shared_experts", 0)
    f.only("inference_moe_w13_interleaved", False)
    f.only("rope_scaling")
    for name in ("layer_types", "layer_rope_theta"):
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang then has the same in each layer, and transformers has not")
    for name in ("layer_types", "mlp_layer_types", "layer_rope_theta"):
        told, layers = f.get(name), f.size("num_hidden_layers")
        if isinstance(told, list) and len(told) != layers:
            raise ConfigError(f"config.json: {name} has {len(told)} entries for {layers} layers")


def _attention(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    width, turns = f.size("head_dim"), _turns(f, len(kinds))
    own = heads(f, width=width, rope=None, qk_norm="bare", value_gate=True, norms_answers=True)
    own = replace(own, scale=f.number("qk_scale_factor") * width**-0.5)
    found = {}
    for kind in dict.fromkeys(kinds):
        thetas = {theta for one, theta in zip(kinds, turns, strict=True) if one == kind}
        if len(thetas) > 1:
            f.cannot(f"layer_rope_theta: layers that are {kind} turn by {len(thetas)} bases")
        theta = min(thetas)
        rope = read_rope_alone(f, {"rope_theta": theta}, width, share=1.0) if theta > 0 else None
        found[kind] = replace(own, rope=rope, window=f.size("sliding_window") if kind == "sliding" else None)
    return found


def _turns(f: Fields, layers: int) -> list[float]:
    """SGLang turns each layer by its own, transformers those that have one by that of rope_parameters."""
    rope = f.section("rope_parameters")
    if rope.get("rope_type", "default") != "default":
        f.cannot(f"rope_type is {rope['rope_type']!r:.60}: SGLang stretches no rope of this family")
    theta = checked_number("rope_theta", rope.get("rope_theta", _THETA))
    told = f.get("layer_rope_theta")
    if told is None:
        return [theta if slides else 0 for slides in _slide(layers)]
    if not isinstance(told, list) or len(told) != layers:
        raise ConfigError(f"config.json: layer_rope_theta is {told!r:.60}: {layers} numbers are needed")
    own = [checked_number("layer_rope_theta", one) for one in told]
    if {*own} - {0, theta}:
        f.cannot(f"layer_rope_theta has others than rope_theta {theta}: transformers turns by that alone")
    return own


def _routed(f: Fields) -> MoEConfig:
    latent = f.size("moe_hidden_size")
    if latent == f.size("hidden_size"):
        f.cannot(f"moe_hidden_size is hidden_size {latent}: SGLang then has no matrices around its experts")
    return MoEConfig(
        num_experts=f.size("num_local_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=f.size("moe_intermediate_size"),
        scoring="sigmoid",
        least_sum=_LEAST_SUM,
        correction_bias=True,
        routed_scaling_factor=f.number("routed_scaling_factor"),
        router_in_fp32=True,
        router_multiplier=f.number("output_multiplier"),
        latent_size=latent,
        sums_latents=True,
        answer_eps=f.number("post_norm_eps"),
        keeps_rows=True,
    )


FAMILIES = (
    Family(
        NAME,
        _muse_spark,
        {
            "vocab_size": 202048,
            "hidden_size": 8192,
            "intermediate_size": 16384,
            "num_hidden_layers": 62,
            "num_attention_heads": 128,
            "num_key_value_heads": 16,
            "head_dim": 64,
            "hidden_act": "silu",
            "max_position_embeddings": 1048576,
            "rms_norm_eps": 1e-5,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "sliding_window": 2048,
            "final_logit_softcapping": 20.0,
            "qk_scale_factor": 5.4730064863875,
            "output_multiplier": 0.1767766952966369,
            "post_norm_eps": 1e-8,
            "moe_intermediate_size": 4096,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "routed_scaling_factor": 1.0,
            "moe_hidden_size": 4096,
            "residual_gate_temperature": 0.3,
        },
    ),
)
