"""Whose prefills SGLang captures: of models whose layers all attend where it looks for that."""

from __future__ import annotations

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.recurrent import DynamicDeltaConfig, ShortConvConfig

_LATENTS_ELSEWHERE = ("bailing_hybrid", "bailing_hybrid_v3")
_LAYERS_ELSEWHERE = ("exaone", "dbrx", "qwen", "gpt2", "opt", "gpt_bigcode", "gptj", "bert", "xlm-roberta")
_MIXERS = ("nemotron_h", "nemotron_h_puzzle")


def captures_prefills(model: ModelConfig, runtime: RuntimeConfig, stages: int) -> bool:
    """compute_attention_and_moe_layers of srt/model_executor, and what becomes of its count."""
    if stages > 1 and not runtime.release.captures_stages_prefills:
        return False
    if model.encoder is not None and model.encoder.hides_text:
        return False
    if model.model_type in _MIXERS:
        return _captures_mixers(model, runtime)
    if model.by_transformers:
        return False
    if not model.attention:  # it looks for a mixer's attention, and for layers that say they are Mamba's
        return False
    is_found = not model.shortcut and model.model_type not in (*_LATENTS_ELSEWHERE, *_LAYERS_ELSEWHERE)
    is_usual = "none" not in model.attention_kinds and not model.crosses
    return is_found and is_usual and not _has_layers_apart(model)


def _has_layers_apart(model: ModelConfig) -> bool:
    is_apart = (
        isinstance(model.recurrent, (DynamicDeltaConfig, ShortConvConfig))
        or model.model_type == "granitemoehybrid"
    )
    return is_apart and "recurrent" in model.attention_kinds


def _captures_mixers(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Of layers that have one thing each, and no attention where they have experts or an MLP."""
    others = {
        layer
        for layer, attention in zip(model.layer_kinds, model.attention_kinds, strict=True)
        if attention == "none"
    }
    captured = runtime.release.captures_mixers
    if not others or captured == "all":
        return True
    return captured == "of experts on sm120" and runtime.sm_major == 12 and others == {"moe"}
