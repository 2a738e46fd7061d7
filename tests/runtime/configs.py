"""A start's config from a few words: the parts of a `RuntimeConfig` by SGLang's flat names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.models.known import family_named, model_config
from runtime.server.config import ModelConfig, RuntimeConfig

_PARTS = {
    "moe_runner_backend": ("kernels", "moe"),
    "moe_a2a_backend": ("kernels", "a2a"),
    "a2a_max_tokens": ("kernels", "a2a_max_tokens"),
    "attention_backend": ("kernels", "attention"),
    "fuses_shared_experts": ("kernels", "fuses_shared_experts"),
    "sm_major": ("kernels", "sm_major"),
    "kv_cache_dtype": ("cache", "dtype"),
    "page_size": ("cache", "page_size"),
    "packs_latents": ("cache", "packs_latents"),
    "max_total_tokens": ("cache", "max_tokens"),
    "sliding_share": ("cache", "sliding_share"),
    "decode_graphs": ("graphs", "decode"),
    "prefill_graphs": ("graphs", "prefill"),
}


def runtime_config(base: RuntimeConfig = RuntimeConfig(), **flat: Any) -> RuntimeConfig:
    for name, value in flat.items():
        part, member = _PARTS.get(name, ("", name))
        if part:
            value = replace(getattr(base, part), **{member: value})
        base = replace(base, **{part or member: value})
    return base


def model_of(hf: Mapping[str, Any]) -> ModelConfig:
    """Of a config.json that may leave out which class is meant."""
    named = hf.get("architectures") or [family_named(hf["model_type"]).architecture]
    return model_config({**hf, "architectures": named})
