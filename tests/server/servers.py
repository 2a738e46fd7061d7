"""Small checkpoints with what the rules look at, and the servers that commands on them become."""

from __future__ import annotations

from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.gpus import find_gpu
from runtime.server.releases import RELEASES, release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server

H100, H200, B200, PRO = "H100", "H200", "B200", "RTX PRO 6000"
VERSIONS = tuple(row.version for row in RELEASES)


def checkpoint(architecture: str, model_type: str, context: int = 32768, **members: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "max_position_embeddings": context,
        "dtype": "bfloat16",
        **members,
    }


QWEN = checkpoint("Qwen3MoeForCausalLM", "qwen3_moe")
LLAMA = checkpoint("LlamaForCausalLM", "llama")
GPT_OSS = checkpoint("GptOssForCausalLM", "gpt_oss")
LATENT = {"kv_lora_rank": 512}
R1 = checkpoint("DeepseekV3ForCausalLM", "deepseek_v3", **LATENT)
V32 = checkpoint("DeepseekV32ForCausalLM", "deepseek_v32", index_topk=2048, **LATENT)
GLM5 = checkpoint("GlmMoeDsaForCausalLM", "glm_moe_dsa", index_topk=2048, **LATENT)
NEMOTRON = checkpoint("NemotronHForCausalLM", "nemotron_h")
NEXT = checkpoint("Qwen3NextForCausalLM", "qwen3_next")
VISION = {"text_config": {"max_position_embeddings": 32768}, "vision_config": {"depth": 27}}
QWEN35 = checkpoint("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", **VISION)
LLAMA4 = checkpoint("Llama4ForConditionalGeneration", "llama4", **VISION)


def server(model: dict[str, Any], gpu: str = H200, version: str = "0.5.23", **flags: Any) -> Server:
    quant_file = flags.pop("quant_file", {})
    asked = Asked(**{"model_path": "models/m", **flags})
    release = release_named(version).release
    return resolve(asked, Checkpoint(model, quant_file), None, find_gpu(gpu), release, {})


def changed_in(values: list[Any], versions: tuple[str, ...] = VERSIONS) -> dict[str, Any]:
    """What a value became, by the release that changed it; the first one begins."""
    found: dict[str, Any] = {}
    for version, value in zip(versions, values, strict=True):
        if not found or value != list(found.values())[-1]:
            found[version.removeprefix("0.5.")] = value
    return found
