"""The towers of LLaVA's own checkpoints (srt/models/llava.py, llavavid.py).

Each names another checkpoint: its tower is transformers' own, CLIP's or SigLIP's, whole on every rank and in
float16, and read with the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from runtime.server.decoders.fields import architecture_of
from runtime.server.encoders.section import Section
from runtime.server.encoders.siglip import patches, whole_mlp, whole_tower
from runtime.server.encoders.weight import Weights, layer_norm, layers, linear, named, whole
from runtime.server.errors import Unsupported

_VIDEO, _MISTRAL = "LlavaVidForCausalLM", "LlavaMistralForCausalLM"
# As published under these names. SGLang tells the two kinds by a name's letters.
_CLIP = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14}
_SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14}
_TOWERS: Mapping[str, Mapping[str, int]] = {
    "openai/clip-vit-large-patch14": {**_CLIP, "image_size": 224},
    "openai/clip-vit-large-patch14-336": {**_CLIP, "image_size": 336},
    "google/siglip-so400m-patch14-384": {**_SIGLIP, "image_size": 384},
}
# What LlavaConfig would take, or a class of text reads beside what its family does.
_UNTOLD = (
    *("text_config", "vision_config", "rope_scaling", "rope_parameters"),
    *("partial_rotary_factor", "rope_is_neox_style", "bias", "is_hybrid_swa"),
)
_JOINER = "multimodal_projector_bias"


def llava_of_its_own(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = _tower_of(hf)
    told = next(_unknown(hf, v), None)
    if told is not None:
        raise Unsupported(f"config.json: {told}")
    bias = bool(hf.get(_JOINER, True))
    yield from named("vision_tower", whole_tower(v) if v.flag("vision_use_head") else _clip(v))
    yield from linear("multi_modal_projector.linear_1", text_width, v.size("hidden_size"), bias)
    yield from linear("multi_modal_projector.linear_2", text_width, text_width, bias)
    if "unpad" in str(hf.get("mm_patch_merge_type", "")):
        yield from whole("image_newline", text_width)


def _tower_of(hf: Mapping[str, Any]) -> Section:
    name = hf.get("mm_vision_tower")
    known = [one for one in _TOWERS if "siglip" not in one or architecture_of(hf) != _VIDEO]
    if name not in known:
        raise Unsupported(
            f"config.json: mm_vision_tower is {name!r:.80}: how large that checkpoint's tower is, a file of "
            f"its own says; known are {', '.join(known)}"
        )
    has_head = {"vision_use_head": "siglip" in name}
    return Section({}, defaults={**_TOWERS[name], **has_head, "num_channels": 3})


def _unknown(hf: Mapping[str, Any], v: Section) -> Iterator[str]:
    """What a class of SGLang's has nothing for, or would take for something else."""
    untold = (*_UNTOLD, *(("sliding_window",) if architecture_of(hf) == _MISTRAL else ()))
    for name in untold:
        if hf.get(name) not in (None, False):
            told = f"{name} is {hf[name]!r:.60}"
            yield f"{told}: LLaVA's own files have none, and what becomes of it is unknown"
    width, layer = v.size("hidden_size"), hf.get("vision_feature_layer", -2)
    if hf.get("mm_hidden_size") != width:
        yield f"mm_hidden_size is {hf.get('mm_hidden_size')!r:.60}: its mm_vision_tower is {width} wide"
    if type(layer) is not int:
        yield f"vision_feature_layer is {layer!r:.60}: SGLang takes one layer's"
    for name, known in _known(v).items():
        told = hf.get(name, known[0])
        if told not in known:
            said = " and ".join(map(repr, known))
            yield f"{name} is {told!r:.60}: SGLang has {said} alone"


def _known(v: Section) -> Mapping[str, tuple[Any, ...]]:
    """Of SigLIP it takes all that is seen, whatever a file selects."""
    selects = {} if v.flag("vision_use_head") else {"mm_vision_select_feature": ("patch", "full")}
    return {
        **selects,
        "mm_projector_type": ("mlp2x_gelu",),
        "mm_resampler_type": (None, "spatial_pool"),
        "projector_hidden_act": ("gelu",),
        _JOINER: (True, False),
    }


def _clip(v: Section) -> Weights:
    width, side = v.size("hidden_size"), v.size("patch_size")
    yield from whole("embeddings.class_embedding", width)
    yield from whole("embeddings.patch_embedding.weight", width, v.size("num_channels"), side, side)
    yield from whole("embeddings.position_embedding.weight", 1 + patches(v), width)
    yield from layer_norm("pre_layrnorm", width)
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers"),
        chain(
            layer_norm("layer_norm1", width),
            layer_norm("layer_norm2", width),
            *(linear(f"self_attn.{one}_proj", width, width) for one in ("q", "k", "v", "out")),
            whole_mlp(width, v.size("intermediate_size")),
        ),
    )
    yield from layer_norm("post_layernorm", width)
