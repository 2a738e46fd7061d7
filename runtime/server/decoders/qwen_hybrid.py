"""Qwen3-Next and Qwen3.5's language models: gated delta nets, and gated attention in every fourth layer."""

from __future__ import annotations

from typing import Any, Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, gated_delta, heads, model, routed, which
from runtime.server.layer_config import AttentionConfig

_MIXERS = {"full_attention": "full", "linear_attention": "recurrent"}
_TURNED = 0.25


def _qwen3_next(f: Fields) -> ModelConfig:
    dense, step = f.layer_numbers("mlp_only_layers"), f.size("decoder_sparse_step")
    kinds = which(f.size("num_hidden_layers"), lambda i: i not in dense and (i + 1) % step == 0)
    return _hybrid(f, kinds, "heads", f.flag("norm_topk_prob"))


def _qwen3_5(f: Fields) -> ModelConfig:
    return _hybrid(f, everywhere(f, "dense"), "matrices")


def _qwen3_5_moe(f: Fields) -> ModelConfig:
    return _hybrid(f, everywhere(f, "moe"), "matrices")


def _hybrid(
    f: Fields, mlps: list[str], projections: Literal["heads", "matrices"], renormalize: bool = True
) -> ModelConfig:
    delta = gated_delta(
        f,
        projections=projections,
    )
    own: dict[str, Any] = {}
    if "moe" in mlps:
        shared = f.size("shared_expert_intermediate_size")
        own["moe"] = routed(
            f,
            "moe_intermediate_size",
            renormalize=renormalize,
            shared_intermediate_size=shared,
            shared_gate=True,
        )
    kinds = _kinds(f)
    if "full" not in kinds:
        f.cannot("no layer has attention: this runtime has no server of states alone")
    own["recurrent"] = delta if "recurrent" in kinds else None
    own["whole_embedding"] = projections == "matrices"
    return model(f, {"full": _attention(f)}, kinds, mlps, centred_norms=True, **own)


def _attention(f: Fields) -> AttentionConfig:
    bias = f.flag("attention_bias")
    f.only("attn_output_gate", True)
    return heads(f, share=_TURNED, bias=bias, output_bias=bias, qk_norm="head", output_gate=True)


def _kinds(f: Fields) -> list[str]:
    layers, every = f.size("num_hidden_layers"), f.size("full_attention_interval", 4)
    told = f.per_layer("layer_types", layers, _MIXERS)
    return told or ["recurrent" if (i + 1) % every else "full" for i in range(layers)]


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
    Family(
        "qwen3_5_text",
        _qwen3_5,
        {**COMMON, "intermediate_size": 12288, "num_key_value_heads": 4},
    ),
    Family(
        "qwen3_5_moe_text",
        _qwen3_5_moe,
        {**COMMON, **EXPERTS, "num_experts_per_tok": 8, "num_experts": 256},
    ),
)
