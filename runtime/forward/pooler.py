"""From hidden states to what a server answers that generates nothing: one row of each prompt.

srt/layers/pooler.py: the last token's, scored by a model that scores, and else made one long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from runtime.forward.batch import ForwardBatch
from runtime.forward.logits_processor import LogitsOutput


class Pooler:
    keep_hidden_states = False

    def __init__(self, scores: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        self.scores = scores

    def forward(
        self, hidden: torch.Tensor, batch: ForwardBatch, captured: Sequence[torch.Tensor] = ()
    ) -> LogitsOutput:
        rows = hidden[batch.query_starts[1:] - 1]
        return LogitsOutput(pooled=F.normalize(rows, dim=-1) if self.scores is None else self.scores(rows))
