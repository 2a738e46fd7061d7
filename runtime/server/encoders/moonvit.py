"""MoonViT as Kimi-K2.5 has it (srt/models/kimi_k25.py), heads split, what follows them whole; and as Kimi-VL
does (kimi_vl_moonvit.py), both split; its tower again in LocateAnything (locate_anything.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    linear,
    over_attention_ranks,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError

_DEFAULTS = {
    "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "num_attention_heads": 16,
    "num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "merge_kernel_size": [2, 2],
    "pos_emb_type": "divided_fixed", "merge_type": "sd2_tpool", "text_hidden_size": 7168,
}  # fmt: skip
_OTHERWISE = {
    **{f"vt_{name}": name for name in ("hidden_size", "intermediate_size")},
    **{f"vt_num_{name}": f"num_{name}" for name in ("hidden_layers", "attention_heads")},
    **{f"pos_emb_{side}": f"init_pos_emb_{side}" for side in ("height", "width")},
}
_ALONE = {
    "pos_emb_type": ("divided_fixed",),
    "merge_type": ("sd2_tpool",),
    "activation_func": ("gelu_pytorch_tanh", "gelu"),
}


def kimi_k25(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = _section(hf)
    _check_kinds(v, ("pos_emb_type", "merge_type"))
    made = v.size("text_hidden_size")
    if made != text_width:
        raise ConfigError(
            f"{v.where}text_hidden_size is {made}: SGLang makes rows so wide, and the text's are {text_width}"
        )
    return _tower(v, text_width, _whole_mlp)


def kimi_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    return _tower(_section(hf), text_width, _split_mlp)


def locate_anything(hf: Mapping[str, Any], text_width: int) -> Weights:
    """What is merged is normed, and not what each patch has."""
    v = _section(hf)
    merged = v.size("hidden_size") * _merged(v)
    yield from _patches_and_layers(v, _split_mlp)
    yield from layer_norm("multi_modal_projector.pre_norm", merged)
    yield from linear("multi_modal_projector.linear_1", text_width, merged)
    yield from linear("multi_modal_projector.linear_2", text_width, text_width)


def _section(hf: Mapping[str, Any]) -> Section:
    """Of two spellings of a size SGLang's config class has one: not always that of published files."""
    v = Section(hf, defaults=_DEFAULTS)
    for other, read in _OTHERWISE.items():
        told, taken = v.get(other), v.size(read)
        if told not in (None, taken):
            raise ConfigError(
                f"{v.where}{other} is {repr(told)[:60]}: SGLang reads {read}, which is {taken} here"
            )
    return v


def _tower(v: Section, text_width: int, mlp: Callable[[int, int], Weights]) -> Weights:
    width = v.size("hidden_size")
    merged = width * _merged(v)
    yield from _patches_and_layers(v, mlp)
    yield from layer_norm("mm_projector.pre_norm", width)
    yield from linear("mm_projector.linear_1", merged, merged)
    yield from linear("mm_projector.linear_2", text_width, merged)


def _patches_and_layers(v: Section, mlp: Callable[[int, int], Weights]) -> Weights:
    width, inner, patch = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    yield from whole("patch_embed.proj.weight", width, 3, patch, patch)
    yield from whole("patch_embed.proj.bias", width)
    grid = (v.size(f"init_pos_emb_{side}") for side in ("height", "width"))
    yield from whole("patch_embed.pos_emb.weight", *grid, width)
    yield from layers(
        "encoder.blocks",
        v.size("num_hidden_layers"),
        chain(
            layer_norm("norm0", width),
            layer_norm("norm1", width),
            mlp(width, inner),
            attention(width, v.size("num_attention_heads")),
        ),
    )
    yield from layer_norm("encoder.final_layernorm", width)


_OF_K3 = {
    "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "vt_num_hidden_layers": 27,
    "vt_hidden_size": 1024, "vt_intermediate_size": 4096, "qkv_hidden_size": 1536, "norm_type": "rmsnorm",
    "pos_emb_type": "divided_fixed", "merge_type": "sd2_tpool", "activation_func": "gelu_pytorch_tanh",
    "merge_kernel_size": [2, 2],
}  # fmt: skip


def kimi_k3(hf: Mapping[str, Any], text_width: int) -> Weights:
    """srt/models/kimi_k3_vl.py: whole on every rank, queries as wide as they say."""
    v = Section(hf, defaults=_OF_K3)
    _check_kinds(v, _ALONE)
    width, inner, asked = (
        v.size(name) for name in ("vt_hidden_size", "vt_intermediate_size", "qkv_hidden_size")
    )
    patch, attends, biased = v.size("patch_size"), v.flag("attn_bias"), v.flag("linear_bias")
    yield from linear(
        "vision_tower.patch_embed.proj", width, 3 * patch * patch, v.flag("patch_embed_proj_bias")
    )
    grid = (v.size(f"init_pos_emb_{side}") for side in ("height", "width"))
    yield from whole("vision_tower.patch_embed.pos_emb.weight", *grid, width)
    norm = _norm_of(v)
    parts = chain(
        norm("norm0", width),
        norm("norm1", width),
        linear("mlp.fc0", inner, width, biased),
        linear("mlp.fc1", width, inner, biased),
        linear("wqkv", 3 * asked, width, attends),
        linear("wo", width, asked, attends),
    )
    yield from layers("vision_tower.encoder.blocks", v.size("vt_num_hidden_layers"), parts)
    yield from norm("vision_tower.encoder.final_layernorm", width)
    merged = (v.get("mm_hidden_size") or width) * _merged(v)
    yield from linear("mm_projector.proj.0", merged, merged, bias=False)
    yield from linear("mm_projector.proj.2", text_width, merged, bias=False)
    yield from rms_norm("mm_projector.post_norm", text_width)


def _check_kinds(v: Section, names: Iterable[str]) -> None:
    for name in names:
        if v.get(name) not in _ALONE[name]:
            known = " and ".join(_ALONE[name])
            raise ConfigError(f"{v.where}{name} is {repr(v.get(name))[:60]}: SGLang has {known}")


def _norm_of(v: Section) -> Callable[[str, int], Weights]:
    known = {"rmsnorm": rms_norm, "layernorm": layer_norm}
    if v.get("norm_type") not in known:
        raise ConfigError(
            f"{v.where}norm_type is {repr(v.get('norm_type'))[:60]}: SGLang has {', '.join(known)}"
        )
    return known[v.get("norm_type")]


def _merged(v: Section) -> int:
    """Patches that become one, by both sides."""
    sides = v.get("merge_kernel_size")
    known = isinstance(sides, list) and all(type(one) is int and one > 0 for one in sides)
    if not known or len(sides) != 2:
        raise ConfigError(f"{v.where}merge_kernel_size is {repr(sides)[:60]}: two sizes are needed")
    return int(sides[0] * sides[1])


def _whole_mlp(width: int, inner: int) -> Weights:
    yield from linear("mlp.fc0", inner, width)
    yield from linear("mlp.fc1", width, inner)


def _split_mlp(width: int, inner: int) -> Weights:
    yield from over_attention_ranks(chain(column("mlp.fc0", inner, width), row("mlp.fc1", width, inner)))
