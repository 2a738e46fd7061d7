"""What SGLang makes beside a decoder's weights, and this runtime has no need of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from runtime.forward.comm import Communicator
from runtime.layers.embedding import TokenEmbedding, VocabTable
from runtime.models.decoder import Decoder
from runtime.models.encoder import EncoderWeights
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import drops_head, has_idle_embedding, has_idle_head
from runtime.start.sglang_buffers import second_angles


def weights_beside(decoder: Decoder, runtime: RuntimeConfig, layers: Sequence[int]) -> list[torch.Tensor]:
    """A head that is dropped is there for a moment."""
    model, device = decoder.model, decoder.build.device
    if decoder.head is not None and drops_head(model.model_type, model.tie_word_embeddings):
        torch.empty_like(decoder.head.weight)
    return [*second_angles(model, runtime, layers, device), *idle_weights(decoder)]


def made_first(
    model: ModelConfig,
    runtime: RuntimeConfig,
    comm: Communicator,
    device: torch.device,
    layers: Sequence[int],
) -> list[nn.Module]:
    """Of a class that makes its text and what it sees with twice: there until both are there again."""
    if model.encoder is None or not model.encoder.is_made_twice:
        return []
    text = Decoder(model, runtime, comm, device, layers)
    seen = [one for one in model.encoder.weights if not one.is_heard]
    return [text, EncoderWeights(seen, comm, text.build.dtype, device)]


def idle_weights(decoder: Decoder) -> list[torch.Tensor]:
    """Of a stage that computes no logits, a head; of one that takes no tokens, an embedding."""
    model, release = decoder.model, decoder.build.runtime.release
    made: list[TokenEmbedding | VocabTable] = []
    if not decoder.is_first and has_idle_embedding(model.model_type):
        made.append(decoder.make_embedding())
    if not decoder.is_last and has_idle_head(model.model_type, model.tie_word_embeddings, release.number):
        made.append(decoder.make_embedding() if model.tie_word_embeddings else decoder.make_head())
    return [one for part in made for one in part.parameters()]
