"""Speculative decoding: how far a draft runs ahead, and which worker drafts."""

from __future__ import annotations

from runtime.server.choices import Choices
from runtime.server.errors import ConfigError

_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "STANDALONE", "NGRAM", "DFLASH")


def settle_speculation(c: Choices) -> None:
    if c.speculative_algorithm is None:
        return
    algorithm = c.speculative_algorithm.upper()
    if algorithm not in _ALGORITHMS:
        raise ConfigError(
            f"--speculative-algorithm {c.speculative_algorithm} is not supported",
            f"one of {', '.join(_ALGORITHMS)}",
        )
    steps = c.speculative_num_steps or 3
    c.settle(
        "unset speculation sizes",
        speculative_num_steps=steps,
        speculative_eagle_topk=c.speculative_eagle_topk or 1,
        speculative_num_draft_tokens=c.speculative_num_draft_tokens or steps + 1,
    )
    if c.max_running_requests is None:
        c.settle("speculation", max_running_requests=48)
    if c.draft_model is not None and c.speculative_draft_model_path is None:
        c.settle("the model drafts for itself", speculative_draft_model_path=c.model_path)
