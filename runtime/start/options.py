"""What a start may do otherwise than a server would: to tune, to predict, to ask what if."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from runtime.graphs.policy import CapturePolicy

UNLIMITED_TOKENS = 4096  # of the KV pool of a device whose memory is not limited
TUNING_TOKENS = 64  # of a KV pool that dummy batches alone use


@dataclass(frozen=True, slots=True)
class StartOptions:
    """`weights` is a Hugging Face folder, None random weights of the same sizes.

    `sample_layers` builds one layer of each kind, which is what tuning needs; the batch then cannot follow
    from the memory left over, so `max_running_requests` gives the requests of one rank. `kv_tokens` sizes the
    KV pool where memory is not limited, `most_tokens` is what other stages have room for.
    """

    weights: Path | None = None
    seed: int = 0
    sample_layers: bool = False
    kv_tokens: int | None = None
    most_tokens: int | None = None
    max_running_requests: int | None = None
    lm_head_in_autotune: bool = False
    capture: CapturePolicy = field(default_factory=CapturePolicy)

    def given_tokens(self, limited: bool) -> int | None:
        """Of the KV pool, where they do not follow from the memory of a `limited` device."""
        if self.sample_layers:
            return TUNING_TOKENS
        if self.kv_tokens is None and not limited:
            return UNLIMITED_TOKENS
        return self.kv_tokens
