"""What families have in common that SGLang has no class of, and runs by transformers' own layers.

srt/models/transformers.py makes linear layers of its own of a checkpoint's matrices, each by itself, and
attends for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, model
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

APART = TensorNames(attends_apart=True, multiplies_apart=True, served=ServedNames())
# A list of layers that all see everything.
SEES_ALL = {"full_attention": "full"}
# What SGLang's class around them, and its logits, ask every file for.
_OF_ANY: Mapping[str, tuple[Any, ...]] = {"logit_scale": (1, 1.0), "final_logit_softcapping": ()}


def by_transformers(
    f: Fields,
    attention: Mapping[str, AttentionConfig],
    kinds: Iterable[str] | None = None,
    names: TensorNames = APART,
    mlp_kinds: Iterable[str] | None = None,
    **own: Any,
) -> ModelConfig:
    """Layers are dense, and see everything, where no kinds are told."""
    asked_of_any(f)
    if kinds is None:
        f.per_layer("layer_types", f.size("num_hidden_layers"), SEES_ALL)
    of_layers = everywhere(f, "full") if kinds is None else kinds
    mlps = everywhere(f, "dense") if mlp_kinds is None else mlp_kinds
    read = model(f, attention, of_layers, mlps, names=names, by_transformers=True, **own)
    stretched_anew(f, attention)
    return replace(read, obstacles=tuple(dict.fromkeys(f.obstacles)))


def asked_of_any(f: Fields) -> None:
    for name, served in _OF_ANY.items():
        f.only(name, *served)


def stretched_anew(f: Fields, attention: Mapping[str, AttentionConfig]) -> None:
    """A rope that is stretched by how long a request is has its angles made anew by one."""
    ropes = [one.rope for one in attention.values() if one.rope is not None]
    if any(rope.parameters["rope_type"] == "dynamic" for rope in ropes):
        f.cannot("rope_type is 'dynamic': transformers' layers make its angles anew for a long request")
