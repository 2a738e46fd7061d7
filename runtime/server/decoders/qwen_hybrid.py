"""Qwen3-Next: gated delta nets, and gated attention in every fourth layer."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import (
    TAKEN_AS_SILU,
    as_counted,
    check_both,
    gated_delta,
    heads,
    model,
    routed,
    which,
)
from runtime.server.layer_config import AttentionConfig

_MIXERS = {"full_attention": "full", "linear_attention": "recurrent"}
_TURNED = 0.25


def _qwen3_next(f: Fields) -> ModelConfig:
    dense, step = f.layer_numbers("mlp_only_layers"), f.size("decoder_sparse_step")
    kinds = which(f.size("num_hidden_layers"), lambda i: i not in dense and (i + 1) % step == 0)
    f.only("tie_word_embeddings", False)  # SGLang's class has a head apart, and reads none
    if f.section("rope_parameters").get("rope_type", "default") != "default":
        f.cannot("rope_parameters are stretched: SGLang's class of this family takes rope_scaling for that")
    return _hybrid(f, kinds, f.flag("norm_topk_prob"))


def _hybrid(f: Fields, mlps: list[str], renormalize: bool) -> ModelConfig:
    """What SGLang's classes have none of is refused: biases of attention, another gate."""
    f.only("attention_bias", False)
    f.only("output_gate_type", *TAKEN_AS_SILU)
    delta, kinds = gated_delta(f), _kinds(f)
    moe = routed(
        f,
        "moe_intermediate_size",
        renormalize=renormalize,
        shared_intermediate_size=f.size("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    check_both(f, kinds)
    return model(
        f,
        {"full": _attention(f)},
        kinds,
        mlps,
        centred_norms=True,
        moe=moe,
        recurrent=delta if "recurrent" in kinds else None,
    )


def _attention(f: Fields) -> AttentionConfig:
    f.only("attn_output_gate", True)
    return heads(f, share=_TURNED, qk_norm="head", output_gate=True)


def _kinds(f: Fields) -> list[str]:
    layers, every = f.size("num_hidden_layers"), f.size("full_attention_interval", 4)
    counted = ["recurrent" if (i + 1) % every else "full" for i in range(layers)]
    if not f.tells("full_attention_interval"):  # which ends a server
        return f.per_layer("layer_types", layers, _MIXERS) or counted
    return as_counted(f, "layer_types", _MIXERS, counted, f"full_attention_interval {every}")


COMMON = {
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
EXPERTS = {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}

FAMILIES = (
    Family(
        "qwen3_next",
        _qwen3_next,
        {
            **COMMON,
            **EXPERTS,
            "intermediate_size": 5632,
            "decoder_sparse_step": 1,
            "num_experts_per_tok": 10,
            "num_experts": 512,
            "norm_topk_prob": True,
        },
    ),
)
