"""One server resolved from a few words: a family's architecture, a GPU and what is asked."""

from typing import Any

from runtime.models.known import family_of
from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.gpus import find_gpu
from runtime.server.resolve import resolve
from runtime.server.shape import Server

_SHAPE = {
    "dtype": "bfloat16", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 32000,
    "max_position_embeddings": 40960,
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
_FAMILIES: dict[str, tuple[str, str]] = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3_moe": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "glm4": ("glm4_moe", "Glm4MoeForCausalLM"),
    "deepseek": ("deepseek_v3", "DeepseekV3ForCausalLM"),
    "gpt_oss": ("gpt_oss", "GptOssForCausalLM"),
    "nemotron": ("nemotron_h", "NemotronHForCausalLM"),
    "minimax": ("minimax_m2", "MiniMaxM2ForCausalLM"),
    "gemma": ("gemma3_text", "Gemma3ForCausalLM"),
}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
MODELOPT_FP8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
MXFP4 = {"quant_method": "mxfp4"}


def model(family: str, quantized: dict[str, Any] | None = None, **members: Any) -> Checkpoint:
    kind, architecture = _FAMILIES[family]
    more = _LATENT if family == "deepseek" else {"mlp_hidden_act": "relu2"}
    section = {"quantization_config": quantized} if quantized else {}
    names = {"model_type": kind, "architectures": [architecture]}
    return Checkpoint({**_SHAPE, **more, **names, **section, **members})


def server(checkpoint: Checkpoint | str, gpu: str = "B200", **asked: Any) -> Server:
    target = model(checkpoint) if isinstance(checkpoint, str) else checkpoint
    return resolve(Asked(model_path="org/model", **asked), family_of(target.hf), target, find_gpu(gpu))
