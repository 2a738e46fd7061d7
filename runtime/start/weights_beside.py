"""What SGLang makes beside a decoder's weights, and this runtime has no need of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.parallel import drops_head, has_idle_head
from runtime.start.sglang_buffers import second_angles


def weights_beside(decoder: Decoder, runtime: RuntimeConfig, layers: Sequence[int]) -> list[torch.Tensor]:
    """Of a stage that computes no logits, a head; a head that is dropped is there for a moment."""
    model, device = decoder.model, decoder.build.device
    is_tied = model.tie_word_embeddings
    if decoder.head is not None and drops_head(model.model_type, is_tied):
        torch.empty_like(decoder.head.weight)
    made = second_angles(model, runtime, layers, device)
    if not decoder.is_last and has_idle_head(model.model_type, is_tied):
        made.extend(decoder.make_head().parameters())
    return made
