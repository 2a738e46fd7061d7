"""Classes of SGLang whose head is split over all ranks, whatever --enable-dp-lm-head asks for."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.shape import Server


def not_in_groups(model: ModelConfig, server: Server) -> str | None:
    if server.head_over == "a group" and not model.tie_word_embeddings and _has_one_head(model, server):
        return "--enable-dp-lm-head: its class splits its head over all ranks"
    return None


def _has_one_head(model: ModelConfig, server: Server) -> bool:
    before = model.model_type == "nemotron_h" and server.release.number < (0, 5, 14)
    return model.model_type == "minimax_m2" or before
