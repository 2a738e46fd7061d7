"""Every family that this runtime builds, and the reading of a config.json by its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from runtime.server.config import ModelConfig
from runtime.server.declared import (
    declared_block,
    declared_dtype,
    declared_quantization,
    declared_weights,
)
from runtime.server.decoders import (
    deepseek,
    gemma,
    glm,
    gpt_oss,
    llama,
    minimax,
    mixtral,
    nemotron_h,
    qwen,
    qwen_hybrid,
)
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.routes import unchosen
from runtime.server.errors import Unsupported

_MODULES = (llama, mixtral, qwen, deepseek, glm, gpt_oss, minimax, qwen_hybrid, gemma, nemotron_h)
FAMILIES: dict[str, Family] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
}


def family_of(hf: HF) -> Family:
    model_type = str(hf.get("model_type", ""))
    if model_type not in FAMILIES:
        near = ", ".join(get_close_matches(model_type[:60], sorted(FAMILIES)))
        known = f"here are {', '.join(sorted(FAMILIES))}" + (f"; nearest are {near}" if near else "")
        raise Unsupported(f"model_type {model_type[:60]!r} is not of the core's families: {known}")
    named = hf.get("architectures")
    if isinstance(named, list) and named and named[0] != _ARCHITECTURES[model_type]:
        raise Unsupported(
            f"architecture {str(named[0])[:60]!r}: of model_type {model_type} the core has "
            f"{_ARCHITECTURES[model_type]} alone"
        )
    return FAMILIES[model_type]


def model_config(hf: HF) -> ModelConfig:
    family = family_of(hf)
    model = replace(
        family.read(Fields(hf, family.defaults)),
        checkpoint_quantization=declared_quantization(hf),
        quantization_block=declared_block(hf),
        dtype=declared_dtype(hf),
    )
    model = replace(model, obstacles=(*model.obstacles, *unchosen(model.moe)))
    try:
        model = replace(model, quantized=declared_weights(hf))
    except Unsupported as error:
        return replace(model, obstacles=(*model.obstacles, error.message))
    return replace(model, uncomputed=(*model.uncomputed, *_uncomputed(model)))


def _uncomputed(model: ModelConfig) -> Iterator[str]:
    """How large these are is known, and no kernel here multiplies them."""
    weights = model.quantized
    for kind in dict.fromkeys((weights.linear, weights.experts)):
        if kind is not None and kind.name == "fp8" and kind.per == "tensor" and not kind.is_static:
            yield "quantization_config: this runtime has no layers in fp8 with scales made on the way"
    if (plain := model.plain_experts) is not None:
        yield f"quantization_config: {plain} are excluded: this runtime has no plain experts beside quantized"
