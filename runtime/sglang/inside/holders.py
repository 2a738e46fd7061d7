"""Which part of a model holds the weights' bytes on the GPU, by the kind of SGLang's module that owns it."""

from collections.abc import Iterator
from typing import Any

EXPERTS, ATTENTION, EMBEDDINGS, MLP, OTHER = "experts", "attention", "embeddings", "mlp", "other weights"
_MIXERS = ("Attention", "Attn", "Rotary", "Mamba", "DeltaNet", "Mixer", "ShortConv")


def held_by(model: Any) -> dict[str, int]:
    """Return bytes per kind. A module without a kind of its own has that of the module that contains it."""
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
    """Return the kind by the class, whose package and name are the same in every family, then by `name`."""
    if ".layers.moe" in owner.__module__ or name == "experts":
        return EXPERTS
    if any(word in owner.__name__ for word in _MIXERS) or "attn" in name:
        return ATTENTION
    if "Embedding" in owner.__name__ or "LMHead" in owner.__name__:
        return EMBEDDINGS
    return MLP if owner.__name__.endswith("MLP") else None


def _tensors(module: Any) -> Iterator[Any]:
    """Yield a module's parameters, buffers, and tensors in attributes, such as halves of MLA's weight."""
    import torch

    own = {**vars(module), **vars(module)["_parameters"], **vars(module)["_buffers"]}
    for value in own.values():
        if isinstance(value, torch.Tensor) and value.is_cuda:
            yield value
