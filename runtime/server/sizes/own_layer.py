"""The draft made of one more layer of the model's own checkpoint: srt/models/*_nextn.py, *_mtp.py"""

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.errors import Unsupported
from runtime.server.quantized import UNQUANTIZED


def drafting(model: ModelConfig) -> ModelConfig:
    """Return the model, changed so that one of its layers has the form of the draft's layer."""
    if not model.traits.draft:
        raise Unsupported(f"{model.model_type} has no layer that drafts: a server answers for other drafts")
    if has_plain_layer(model):
        model = replace(model, quantized=UNQUANTIZED)
    kinds = model.layer_kinds
    if model.traits.draft == "experts":
        kinds = tuple("none" if kind == "none" else "moe" for kind in kinds)
    return replace(model, layer_kinds=kinds, vocabulary=replace(model.vocabulary, is_tied=False))


def drafting_layer(model: ModelConfig) -> int:
    """Return the layer that the draft is like: the last with attention and an MLP, or the first."""
    if model.traits.draft == "first":
        return 0
    whole = (i for i in range(model.num_layers) if model.keeps_tokens(i) and model.layer_kinds[i] != "none")
    last = max(whole, default=None)
    if last is None:
        raise Unsupported(
            f"{model.model_type} with drafts: they are several layers of one thing each, which this runtime "
            "does not compute"
        )
    return last


def own_layer(model: ModelConfig) -> ModelConfig:
    """Return the draft's layer as a model by itself."""
    drawn = drafting(model)
    at = slice(layer := drafting_layer(drawn), layer + 1)
    return replace(drawn, attention_kinds=drawn.attention_kinds[at], layer_kinds=drawn.layer_kinds[at])


def has_plain_layer(model: ModelConfig) -> bool:
    """Whether the draft's layer is in the model's dtype although the checkpoint is quantized."""
    is_plain = model.traits.of_deepseek or model.traits.plain_fp4_draft
    return model.quantized.method == "modelopt_fp4" and is_plain
