"""Every family that this runtime builds; a config.json is read by the file of its own family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module

from runtime.server.config import ModelConfig
from runtime.server.declared import (
    declared_block,
    declared_dtype,
    declared_quantization,
    declared_weights,
)
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.routes import unchosen
from runtime.server.errors import Unsupported

# By its model_type: the file of the family, and the architecture that it builds.
FAMILIES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("llama", "MistralForCausalLM"),
    "mixtral": ("mixtral", "MixtralForCausalLM"),
    "qwen3": ("qwen", "Qwen3ForCausalLM"),
    "qwen3_moe": ("qwen", "Qwen3MoeForCausalLM"),
    "deepseek_v3": ("deepseek", "DeepseekV3ForCausalLM"),
    "kimi_k2": ("deepseek", "DeepseekV3ForCausalLM"),
    "deepseek_v32": ("deepseek", "DeepseekV32ForCausalLM"),
    "glm4_moe": ("glm", "Glm4MoeForCausalLM"),
    "glm_moe_dsa": ("glm", "GlmMoeDsaForCausalLM"),
    "gpt_oss": ("gpt_oss", "GptOssForCausalLM"),
    "minimax_m2": ("minimax", "MiniMaxM2ForCausalLM"),
    "qwen3_next": ("qwen_hybrid", "Qwen3NextForCausalLM"),
    "gemma3_text": ("gemma", "Gemma3ForCausalLM"),
    "nemotron_h": ("nemotron_h", "NemotronHForCausalLM"),
}


def family_of(hf: HF) -> Family:
    model_type = str(hf.get("model_type", ""))
    if model_type not in FAMILIES:
        near = ", ".join(get_close_matches(model_type[:60], sorted(FAMILIES)))
        known = f"here are {', '.join(sorted(FAMILIES))}" + (f"; nearest are {near}" if near else "")
        raise Unsupported(f"model_type {model_type[:60]!r} is not of the core's families: {known}")
    module, architecture = FAMILIES[model_type]
    named = hf.get("architectures")
    if isinstance(named, list) and named and named[0] != architecture:
        raise Unsupported(
            f"architecture {str(named[0])[:60]!r}: of model_type {model_type} the core has "
            f"{architecture} alone"
        )
    families: Iterable[Family] = import_module(f"runtime.server.decoders.{module}").FAMILIES
    return next(family for family in families if family.model_type == model_type)


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
