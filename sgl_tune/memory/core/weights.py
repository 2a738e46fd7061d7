"""What the weights of the core's models are for: bytes by the kind of module that owns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

    from runtime.start.model_runner import ModelRunner

_KINDS = {
    "MoELayer": "experts",
    "DenseLayer": "mlp",
    "TokenEmbedding": "embeddings",
    "VocabTable": "embeddings",
    "GroupedQueryAttention": "attention",
    "LatentAttention": "attention",
    "GatedDeltaNet": "attention",
    "Mamba2Mixer": "attention",
}


def weights_of(runner: ModelRunner) -> dict[str, dict[str, int]]:
    """By the phase that loads them; as far as the start came."""
    models = {
        "weights": getattr(runner, "decoder", None),
        "draft weights": runner.draft and runner.draft.decoder,
    }
    seen: set[int] = set()
    return {phase: _owned(model, seen) for phase, model in models.items() if model is not None}


def _owned(model: nn.Module, seen: set[int]) -> dict[str, int]:
    """A module is of the kind of its class, else of the kind of the module around it."""
    found: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for path, module in model.named_modules():
        above = path.rpartition(".")[0]
        kind = kinds[path] = _KINDS.get(type(module).__name__) or kinds.get(above, "other weights")
        for tensor in _tensors(module):
            storage = tensor.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                found[kind] = found.get(kind, 0) + storage.nbytes()
    return found


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
