"""The class whose name stands in the key: SGLang's own of a model_type, else transformers'."""

from __future__ import annotations

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.releases import Release

CONFIG_CLASSES = {
    "llama": "LlamaConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "qwen3_moe": "Qwen3MoeConfig",
    "mixtral": "MixtralConfig",
    "deepseek_v3": "DeepseekV3Config",
    "deepseek_v32": "_DeepseekV32ConfigAlias",
    "glm4_moe": "Glm4MoeConfig",
    "glm_moe_dsa": "GlmMoeDsaConfig",
    "gpt_oss": "GptOssConfig",
}


def config_class(model: Checkpoint, release: Release) -> str:
    name = CONFIG_CLASSES.get(model.model_type)
    if name is None:
        raise ConfigError(f"model_type {model.model_type!r}: SGLang {release.version}'s class is not known")
    return name
