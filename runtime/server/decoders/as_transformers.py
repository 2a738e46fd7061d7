"""Models that SGLang has a class of, on servers that run transformers' own layers of them in its place:
--model-impl transformers, and releases before the class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import asked_of_any, stretched_anew
from runtime.server.decoders.fields import HF, Fields, architecture_of

# Whose layers are the same in both, and the class that has them in transformers.
_ALIKE: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "arcee": "ArceeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
}
_BEHIND_WINDOWS = ("qwen2", "qwen3")  # whose class in transformers has a list of layers in any case


def as_transformers(read: ModelConfig, hf: HF) -> ModelConfig:
    """What is not known so stays what SGLang's class would make of it."""
    is_alike = _ALIKE.get(read.model_type) == architecture_of(hf)
    if not is_alike or (read.model_type not in _BEHIND_WINDOWS and _has_windows(read, hf)):
        return read
    f = Fields(hf, {})
    asked_of_any(f)
    stretched_anew(f, read.attention)
    return replace(
        read,
        names=replace(read.names, attends_apart=True, multiplies_apart=read.gated_mlps),
        by_transformers=True,
        embeds_whole=False,
        obstacles=tuple(dict.fromkeys((*read.obstacles, *f.obstacles))),
    )


def _has_windows(read: ModelConfig, hf: HF) -> bool:
    """SGLang's attention goes by a list of layers, whatever a class makes of it, and by no window without."""
    if any(one.window is not None for one in read.attention.values()):
        return True
    kinds = hf.get("layer_types")
    return bool(hf.get("sliding_window")) and isinstance(kinds, list) and "sliding_attention" in kinds
