"""What a model's weights are for: bytes on the GPU by the kind of SGLang's module that owns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EXPERTS, ATTENTION, EMBEDDINGS, MLP, OTHER = "experts", "attention", "embeddings", "mlp", "other weights"
_MIXERS = ("Attention", "Attn", "Rotary", "Mamba", "DeltaNet", "Mixer", "ShortConv")


def held_by(model: Any) -> dict[str, int]:
    """A module is of the kind that its class says, else of the kind of the module around it."""
    found: dict[str, int] = {}
    if not hasattr(model, "named_modules"):
        return found
    kinds: dict[str, str] = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        above, _, name = path.rpartition(".")
        kind = kinds[path] = kind_of(type(module), name) or kinds.get(above, OTHER)
        for tensor in _tensors(module):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                found[kind] = found.get(kind, 0) + storage.nbytes()
    return found


def kind_of(owner: type, name: str) -> str | None:
    """By the class, whose room in SGLang and whose name are the same for every family, then by its name."""
    if ".layers.moe" in owner.__module__ or name == "experts":
        return EXPERTS
    if any(word in owner.__name__ for word in _MIXERS) or "attn" in name:
        return ATTENTION
    if "Embedding" in owner.__name__ or "LMHead" in owner.__name__:
        return EMBEDDINGS
    return MLP if owner.__name__.endswith("MLP") else None


def _tensors(module: Any) -> Iterator[Any]:
    """Its parameters, its buffers, and tensors in plain attributes, such as MLA's two weight halves."""
    import torch

    own = {**vars(module), **vars(module)["_parameters"], **vars(module)["_buffers"]}
    for value in own.values():
        if isinstance(value, torch.Tensor) and value.is_cuda:
            yield value
