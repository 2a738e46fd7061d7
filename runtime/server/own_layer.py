"""The draft: one more layer of the model's own checkpoint. srt/models/*_nextn.py, *_mtp.py"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import Unsupported
from runtime.server.formats.assigned import UNQUANTIZED

# Model types whose class has one, and of which ModelOpt's nvfp4 leaves it plain.
_DEEPSEEKS = ("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa", "glm4_moe")
_LIKE_THE_FIRST = ("qwen3_moe",)
DRAFTING = (*_DEEPSEEKS, *_LIKE_THE_FIRST, "qwen3_next", "nemotron_h")


def drafting(model: ModelConfig, runtime: RuntimeConfig) -> ModelConfig:
    """As which a draft's layer is made, one of those of this model: of experts, but Nemotron-H's."""
    if model.model_type not in DRAFTING:
        raise Unsupported(f"{model.model_type} has no layer that drafts: a server answers for other drafts")
    if has_plain_layer(model, runtime):
        model = replace(model, quantized=UNQUANTIZED, checkpoint_quantization=None)
    kinds = model.layer_kinds
    if model.model_type != "nemotron_h" and model.model_type not in _LIKE_THE_FIRST:
        kinds = tuple("none" if kind == "none" else "moe" for kind in kinds)
    return replace(model, layer_kinds=kinds, tie_word_embeddings=False)


def drafting_layer(model: ModelConfig) -> int:
    """Which of the model's it is like: the last that keeps tokens and has an MLP."""
    if model.model_type in _LIKE_THE_FIRST:
        return 0
    whole = (i for i in range(model.num_layers) if model.keeps_tokens(i) and model.layer_kinds[i] != "none")
    last = max(whole, default=None)
    if last is None:
        raise Unsupported(
            f"{model.model_type} with drafts: they are several layers of one thing each, which this runtime "
            "does not compute"
        )
    return last


def own_layer(model: ModelConfig, runtime: RuntimeConfig) -> ModelConfig:
    """That layer as a model by itself."""
    drawn = drafting(model, runtime)
    at = slice(layer := drafting_layer(drawn), layer + 1)
    return replace(
        drawn, num_layers=1, attention_kinds=drawn.attention_kinds[at], layer_kinds=drawn.layer_kinds[at]
    )


def has_plain_layer(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Whether the draft's layer is in the model's dtype, whatever the checkpoint says of it."""
    one = runtime.speculative
    if model.checkpoint_quantization is None and one is not None and one.plain:
        return True
    method = runtime.quantization or model.checkpoint_quantization
    return method == "modelopt_fp4" and model.model_type in _DEEPSEEKS
