"""Every family that this runtime builds, and the reading of a config.json by its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.declared import (
    declared_block,
    declared_dtype,
    declared_excluded,
    declared_quantization,
)
from runtime.server.decoders import (
    deepseek,
    ernie,
    exaone,
    glm,
    gpt_oss,
    llama,
    mellum,
    minimax,
    mixtral,
    nemotron_h,
    olmo,
    phi,
    qwen,
    qwen_hybrid,
)
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.wrappers import WRAPPERS, encoder_of, text_part, wrapper_of
from runtime.server.errors import Unsupported

_MODULES = (
    *(llama, mixtral, qwen, deepseek, glm, gpt_oss, minimax, ernie, olmo, exaone, phi, mellum),
    *(qwen_hybrid, nemotron_h),
)
FAMILIES: dict[str, Family] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}
# Whose layers call their experts block_sparse_moe.
_SPARSE_BLOCKS = ("mixtral", "minimax_m2")


def family_of(hf: HF) -> Family:
    model_type = str(hf.get("model_type", ""))
    if model_type not in FAMILIES:
        known = ", ".join(sorted({*FAMILIES, *WRAPPERS}))
        raise Unsupported(f"model_type {model_type!r} is not supported: this runtime knows {known}")
    return FAMILIES[model_type]


def model_config(hf: HF) -> ModelConfig:
    wrapper = wrapper_of(hf)
    if wrapper is None:
        return _text_model(hf)
    text = _text_model(text_part(wrapper, hf))
    return replace(text, encoder=encoder_of(wrapper, hf, text.hidden_size))


def _text_model(hf: HF) -> ModelConfig:
    family = family_of(hf)
    model = replace(
        family.read(Fields(hf, family.defaults)),
        checkpoint_quantization=declared_quantization(hf),
        quantization_block=declared_block(hf),
        excluded=declared_excluded(hf),
        dtype=declared_dtype(hf),
    )
    return replace(model, obstacles=(*model.obstacles, *_not_computed(model)))


def _not_computed(model: ModelConfig) -> Iterator[str]:
    """Of what the checkpoint excludes from its quantization."""
    doubt = next(model.excluded.doubts(model.num_layers), None)
    if doubt is not None:
        yield f"quantization_config: {doubt}"
        return
    yield from _plain_experts(model)
    yield from _quantized_head(model)


def _plain_experts(model: ModelConfig) -> Iterator[str]:
    """SGLang then runs these layers by another kernel than the rest."""
    mlp = "block_sparse_moe" if model.model_type in _SPARSE_BLOCKS else "mlp"
    names = (
        f"model.layers.{layer}.{mlp}.experts" for layer, kind in enumerate(model.layer_kinds) if kind == "moe"
    )
    plain = next((name for name in names if model.excluded.experts(name)), None)
    if plain is not None:
        yield f"quantization_config: {plain} are excluded: this runtime has no plain experts beside quantized"


def _quantized_head(model: ModelConfig) -> Iterator[str]:
    by_modelopt = model.checkpoint_quantization in ("modelopt_fp8", "modelopt_fp4")
    if by_modelopt and not model.tie_word_embeddings and not model.excluded.linear(["lm_head"]):
        yield "quantization_config: lm_head is not excluded: this runtime has no quantized head"
