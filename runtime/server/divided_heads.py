"""Classes of SGLang whose head is split over all ranks, whatever --enable-dp-lm-head asks for.

A group then has a part of its logits, in a buffer for all of them: what it tunes is as without.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.flags.spelling import spelled
from runtime.server.shape import Server

_MIXERS = ("nemotron_h", "nemotron_h_puzzle")


def not_in_groups(model: ModelConfig, server: Server) -> str | None:
    if server.head_over == "a group" and not model.tie_word_embeddings and _has_one_head(model, server):
        flag = spelled(server.release, "enable_dp_lm_head", True)
        owner = f"SGLang's class of {model.model_type}"
        return f"{flag}: {owner} splits its head over all ranks, and gathers a group's"
    return None


def _has_one_head(model: ModelConfig, server: Server) -> bool:
    before = model.model_type in _MIXERS and server.release.number < (0, 5, 14)
    return model.model_type == "minimax_m2" or before
