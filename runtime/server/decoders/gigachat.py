"""GigaChat 3.5: gated delta nets in most layers, gated latents in some, experts after a few dense layers, and
norms that gate what they norm at either end of each.

transformers has no class of it: fields are those of SGLang's srt/configs/gigachat35.py, which takes every
file of this model_type, and of the class that its checkpoints bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import check_both, gated_delta, latents, model, which
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, MLAConfig, MoEConfig, NormStyle, RopeConfig
from runtime.server.norm_gates import NormGates
from runtime.server.recurrent import GatedDeltaConfig
from runtime.server.tensor_names import ServedNames, TensorNames

NAME = "gigachat3_5"
_MIXERS = {"linear_attention": "recurrent", "full_attention": "full", "attention": "full"}
_NORMS: Mapping[str, NormStyle] = {"pre": "before", "pre_post": "enclosed"}
# Of no other value, none told included, are these layers those of both classes.
_ONE_WAY: Mapping[str, Any] = {
    "hidden_act": "silu",
    "norm_type": "ZeroCenteredGatedNorm",
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "output_gate_type": "sigmoid",
    "linear_attention_type": "Qwen3NextGatedDeltaNet",
}
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "use_shared_expert_sigmoid"), False),
    "linear_use_legacy_qkvz_layout": False,
    "linear_use_short_conv": True,
    "num_krope_heads": 1,
    "attention_type": "LlamaLatentAttention",
}
_GATES = {"gated_rmsnorm_sigmoid": False, "gated_rmsnorm_sigmoid_zero_centered": True}
_RANK = 16  # of a norm's gate, in both classes
_STRETCHED = ("factor", "original_max_position_embeddings", "mscale", "mscale_all_dim")
_ROPE = (*_STRETCHED, "type", "rope_type", "rope_theta", "beta_fast", "beta_slow")
# SGLang's class calls a layer's gate attn_gate, and asks for what it multiplies as one by its own names.
_SERVED = ServedNames(paths=((r"\.self_attn\.gate_proj", ".self_attn.attn_gate"),))
_NAMES = TensorNames(recurrent="self_attn", latent_gate="gate_proj", served=_SERVED)


def _gigachat(f: Fields) -> ModelConfig:
    _check(f)
    kinds = _kinds(f, f.size("num_hidden_layers"))
    attention, mla = _latents(f)
    first, every = f.count("first_k_dense_replace"), f.size("moe_layer_freq", 1)
    mlps = which(len(kinds), lambda i: i >= first and i % every == 0)
    return model(
        f,
        {"full": attention},
        kinds,
        mlps,
        moe=_routed(f) if "moe" in mlps else None,
        mla=mla,
        recurrent=_delta(f) if "recurrent" in kinds else None,
        norms=_norms(f),
        norm_gates=NormGates(_RANK, f.number("layernorm_gating_weight")),
        caps=_caps(f, len(kinds)),
        names=_NAMES,
    )


def _check(f: Fields) -> None:
    for name, value in _ONE_WAY.items():
        if f.get(name) != value:
            f.cannot(f"{name} is {repr(f.get(name))[:60]}: this runtime computes {value!r}")
    for name, value in _ALONE.items():
        f.only(name, value)
    if f.get("linear_attn_o_norm_eps") not in (None, f.get("rms_norm_eps")):
        f.cannot("linear_attn_o_norm_eps is not rms_norm_eps: SGLang norms all by that")


def _norms(f: Fields) -> NormStyle:
    told = f.get("layernorm_type")
    if told not in [*_NORMS]:
        f.cannot(f"layernorm_type is {repr(told)[:60]}: this runtime computes {' or '.join(_NORMS)}")
    return _NORMS.get(str(told), "enclosed")


def _kinds(f: Fields, layers: int) -> list[str]:
    """SGLang goes by layer_types where a file has both, and a checkpoint's class by the others."""
    told, whole = f.per_layer("layer_types", layers, _MIXERS), f.layer_numbers("full_attention_layers")
    if told is not None and len(f.get("layer_types")) != layers:
        raise ConfigError(f"config.json: layer_types are not those of {layers} layers")
    if not whole <= {*range(layers)}:
        f.cannot(f"full_attention_layers names others than layers 0 to {layers - 1}")
    kinds = ["full" if layer in whole else "recurrent" for layer in range(layers)]
    if told is not None and f.has("full_attention_layers") and told != kinds:
        f.cannot("full_attention_layers are not those of layer_types: SGLang goes by these")
    kinds = told or kinds
    check_both(f, kinds)
    return kinds


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    attention, mla = latents(f, f.flag("rope_interleave"), rope=_rope(f))
    mla = replace(mla, norm_eps=f.number("rms_norm_eps"))
    if f.flag("use_mla_scaling_factor"):
        hidden = f.size("hidden_size")
        asked = (hidden / mla.q_lora_rank) ** 0.5 if mla.q_lora_rank else 1.0
        mla = replace(mla, query_scale=asked, latent_scale=(hidden / mla.kv_lora_rank) ** 0.5)
    return replace(attention, value_gate=f.flag("gated_attention")), mla


def _rope(f: Fields) -> RopeConfig:
    """SGLang's class takes any rope for DeepSeek's stretched one, of the base that stands beside it."""
    section = f.section("rope_scaling") or f.section("rope_parameters")
    kind = section.get("rope_type") or section.get("type") or "default"
    if kind != "yarn":
        f.cannot(
            f"rope_type is {repr(kind)[:60]}: SGLang takes it for a yarn, and ends at one without a factor"
        )
    for name in _STRETCHED if kind == "yarn" else ():
        if section.get(name) is None:
            f.cannot(f"rope_scaling has no {name}: of yarns this runtime computes those that tell it")
    others = sorted(name for name in section if name not in _ROPE)
    if others:
        f.cannot(f"rope_scaling has {', '.join(others)[:60]}, which SGLang's rope of this family has not")
    if section.get("rope_theta") not in (None, f.get("rope_theta")):
        f.cannot(f"rope_theta is {f.get('rope_theta')}, which SGLang takes, and another in rope_scaling")
    return read_rope(f, f.size("qk_rope_head_dim"))


def _delta(f: Fields) -> GatedDeltaConfig:
    gating = f.get("linear_gating_type")
    if gating not in [*_GATES]:
        f.cannot(f"linear_gating_type is {repr(gating)[:60]}: this runtime computes {', '.join(_GATES)}")
    return gated_delta(
        f,
        projections="heads",
        plain_gate=True,
        norm_scale=f.number("linear_sigmoid_gate_scale"),
        centred_norm=_GATES.get(str(gating), True),
    )


def _routed(f: Fields) -> MoEConfig:
    inner = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size("n_routed_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("n_shared_experts"),
        scoring="sigmoid",
        renormalize=f.flag("norm_topk_prob"),
        correction_bias=True,
        num_groups=f.size("n_group"),
        top_k_groups=f.size("topk_group"),
        routed_scaling_factor=f.number("routed_scaling_factor"),
    )


def _caps(f: Fields, layers: int) -> tuple[Caps, ...]:
    """SGLang's Triton kernels cap a gate behind its silu, which is as much within a ten-thousandth of it."""
    limit = f.number("swiglu_limit", 0.0)
    return (Caps(limit, limit, before=True),) * layers if limit > 0 else ()


FAMILIES = (
    Family(
        NAME,
        _gigachat,
        {
            "vocab_size": 128256,
            "hidden_size": 1280,
            "intermediate_size": 896,
            "moe_intermediate_size": 896,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_theta": 100000.0,
            "rope_interleave": True,
            "tie_word_embeddings": False,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "moe_layer_freq": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "linear_attention_type": "Qwen3NextGatedDeltaNet",
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 16,
            "linear_sigmoid_gate_scale": 2.0,
            "output_gate_type": "sigmoid",
            "norm_type": "ZeroCenteredGatedNorm",
            "layernorm_type": "pre_post",
            "layernorm_gating_weight": 2.0,
            "gated_attention": True,
            "use_mla_scaling_factor": True,
        },
    ),
)
