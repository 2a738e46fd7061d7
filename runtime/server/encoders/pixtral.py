"""Pixtral's tower as Mistral 3, Llava and LightOnOCR have it (srt/models/pixtral.py, lightonocr.py), with
their projectors, whole.

As a params.json tells it, all of it is whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, attention, column, layers, linear, rms_norm, row, whole
from runtime.server.errors import ConfigError, Unsupported

# Of a section that leaves them out; one that is not there at all has smaller patches.
_DEFAULTS = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_channels": 3, "patch_size": 16,
}  # fmt: skip
_BIAS = "multimodal_projector_bias"
_UNSAID = {**_DEFAULTS, "patch_size": 14}


def mistral3(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = _section_of(hf)
    bias = bool(hf.get("multimodal_projector_bias", False))
    yield from _tower(v)
    yield from _projector(v, text_width, hf.get("spatial_merge_size") or 2, bias)


def llava(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Its file may tell any tower, and any text."""
    v = _section_of(hf)
    _known_parts(hf, v)
    bias = hf.get(_BIAS, True)
    yield from _tower(v)
    yield from linear("multi_modal_projector.linear_1", text_width, v.size("hidden_size"), bool(bias))
    yield from linear("multi_modal_projector.linear_2", text_width, text_width, bool(bias))


def _known_parts(hf: Mapping[str, Any], v: Section) -> None:
    """srt/models/llava.py asks for a class of each part by its config's, and loads none by "default"."""
    text = hf.get("text_config")
    own = text if isinstance(text, Mapping) else {}
    kind = own.get("model_type", "llama")
    if v.get("model_type") != "pixtral":
        told = f"{v.where}model_type is {v.get('model_type')!r:.60}"
        raise Unsupported(f"{told}: of LLaVA's towers SGLang has layers of pixtral alone")
    rope = v.get("rope_parameters", "rope_scaling")
    if rope is not None and (not isinstance(rope, Mapping) or rope.get("rope_type", rope.get("type"))):
        told = f"{v.where}rope_parameters is {rope!r:.60}"
        raise Unsupported(f"{told}: transformers' releases know different kinds of Pixtral's rope")
    if kind not in ("llama", "mistral"):
        raise Unsupported(
            f"config.json: text_config: model_type is {kind!r:.60}: known are llama and mistral"
        )
    if hf.get("tie_word_embeddings") and not own.get("tie_word_embeddings"):
        raise Unsupported(
            "config.json: tie_word_embeddings: SGLang reads that of text_config, which has none"
        )
    strategy, layer = hf.get("vision_feature_select_strategy", "default"), hf.get("vision_feature_layer", -2)
    if strategy != "full":
        told = f"config.json: vision_feature_select_strategy is {strategy!r:.60}"
        raise Unsupported(f"{told}: SGLang loads no weights but of 'full'")
    if type(layer) is not int:
        raise Unsupported(f"config.json: vision_feature_layer is {layer!r:.60}: SGLang takes one layer's")
    if "unpad" in str(hf.get("mm_patch_merge_type", "flat")):
        raise Unsupported("config.json: mm_patch_merge_type: SGLang then has a parameter more, of no file")


def lighton_ocr(hf: Mapping[str, Any], text_width: int) -> Weights:
    """What its tower's section tells goes before what stands beside it."""
    v, told = _section_of(hf), hf.get("vision_config") or {}
    merge = told.get("spatial_merge_size", hf.get("spatial_merge_size", 2))
    bias = told.get("adapter_bias", hf.get(_BIAS, False))
    is_mistral = hf.get("model_type") == "mistral3"
    if is_mistral and hf.get(_BIAS, False) is None:
        raise ConfigError(f"config.json: {_BIAS} is null: true or false is needed")
    if not is_mistral and (bias or ("adapter_bias" not in told and _BIAS not in hf)):
        said = "is missing" if _BIAS not in hf and "adapter_bias" not in told else "is not false"
        raise Unsupported(f"config.json: {_BIAS} {said}: SGLang then adds biases that no checkpoint has")
    yield from _tower(v)
    yield from _projector(v, text_width, merge, bool(bias))


def _section_of(hf: Mapping[str, Any]) -> Section:
    return Section(hf, defaults=_UNSAID if hf.get("vision_config") is None else _DEFAULTS)


def _projector(v: Section, text_width: int, merge: Any, bias: bool) -> Weights:
    width = v.size("hidden_size")
    if type(merge) is not int or merge < 1:
        raise ConfigError(
            f"config.json: spatial_merge_size is {merge!r:.60}: a positive whole number is needed"
        )
    yield from rms_norm("multi_modal_projector.norm", width)
    merger = "multi_modal_projector.patch_merger.merging_layer"
    yield from linear(merger, width, width * merge**2, bias=False)
    yield from linear("multi_modal_projector.linear_1", text_width, width, bias)
    yield from linear("multi_modal_projector.linear_2", text_width, text_width, bias)


def native(hf: Mapping[str, Any], text_width: int) -> Weights:
    """The class PixtralForConditionalGeneration: what its section leaves out, transformers' has."""
    v = Section(hf, defaults=_DEFAULTS)
    told = hf.get("vision_config") or {}
    width, inner, side = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    if "image_token_id" not in told:
        raise ConfigError("config.json: vision_config without image_token_id: SGLang asks for it")
    yield from whole("vision_encoder.patch_conv.weight", width, v.size("num_channels"), side, side)
    yield from rms_norm("vision_encoder.ln_pre", width)
    yield from layers(
        "vision_encoder.transformer.layers",
        v.size("num_hidden_layers"),
        chain(
            *(linear(f"attention.{one}", width, width, bias=False) for one in ("wq", "wk", "wv", "wo")),
            *(linear(f"feed_forward.{one}", inner, width, bias=False) for one in ("w1", "w3")),
            linear("feed_forward.w2", width, inner, bias=False),
            rms_norm("attention_norm", width),
            rms_norm("ffn_norm", width),
        ),
    )
    if told.get("add_pre_mm_projector_layer_norm"):
        yield from rms_norm("pre_mm_projector_norm", width)
    if told.get("mm_projector_id") == "patch_merge":
        merge = v.size("spatial_merge_size") if "spatial_merge_size" in told else 1
        yield from linear("patch_merger.merging_layer", width, width * merge**2, bias=False)
    bias = told.get("adapter_bias", True)
    yield from linear("vision_language_adapter.w_in", text_width, width, bool(bias))
    yield from linear("vision_language_adapter.w_out", text_width, text_width, bool(bias))


def _tower(v: Section) -> Weights:
    width, inner, side = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    yield from whole("patch_conv.weight", width, v.size("num_channels"), side, side)
    yield from rms_norm("ln_pre", width)
    heads = v.size("num_attention_heads")
    yield from layers(
        "transformer.layers",
        v.size("num_hidden_layers"),
        chain(
            rms_norm("attention_norm", width),
            rms_norm("ffn_norm", width),
            attention(width, heads, qkv_bias=False, out_bias=False),
            column("feed_forward.gate_up_proj", 2 * inner, width, bias=False, units=inner),
            row("feed_forward.down_proj", width, inner, bias=False),
        ),
    )
