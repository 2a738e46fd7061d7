"""Every family that this runtime builds, and the reading of a config.json by its own."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.declared import declared_block, declared_dtype, declared_quantization
from runtime.server.decoders import deepseek, ernie, glm, gpt_oss, llama, minimax, mixtral, qwen
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.errors import Unsupported

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for module in (llama, mixtral, qwen, deepseek, glm, gpt_oss, minimax, ernie)
    for family in module.FAMILIES
}


def family_of(hf: HF) -> Family:
    model_type = str(hf.get("model_type", ""))
    if model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise Unsupported(f"model_type {model_type!r} is not supported: this runtime knows {known}")
    return FAMILIES[model_type]


def model_config(hf: HF) -> ModelConfig:
    family = family_of(hf)
    return replace(
        family.read(Fields(hf, family.defaults)),
        checkpoint_quantization=declared_quantization(hf),
        quantization_block=declared_block(hf),
        dtype=declared_dtype(hf),
    )
