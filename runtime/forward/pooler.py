"""From hidden states to what a server answers that generates nothing: one row of each prompt.

srt/layers/pooler.py: the last token's or the first's, or the mean of all, scored by a model that scores, and
else made one long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from runtime.forward.batch import ForwardBatch
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.table_config import ScoresConfig

Rows = Callable[[torch.Tensor], torch.Tensor]
# Of all rows, and what picks those of prompts.
Scoring = Callable[[torch.Tensor, Rows], torch.Tensor]


class Pooler:
    keep_hidden_states = False

    def __init__(
        self,
        config: ScoresConfig | None,
        scores: Scoring | None,
        dense: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        self.pools = "last" if config is None else config.pools
        self.scores, self.dense = scores, dense

    def forward(
        self, hidden: torch.Tensor, batch: ForwardBatch, captured: Sequence[torch.Tensor] = ()
    ) -> LogitsOutput:
        if self.scores is not None:
            return LogitsOutput(pooled=self.scores(hidden, lambda rows: self._pooled(rows, batch)))
        rows = self._pooled(hidden, batch)
        return LogitsOutput(pooled=F.normalize(rows if self.dense is None else self.dense(rows), dim=-1))

    def _pooled(self, hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        if self.pools == "mean":
            return _means(hidden, batch)
        return hidden[batch.query_starts[:-1] if self.pools == "first" else batch.query_starts[1:] - 1]


def _means(hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
    sums = F.pad(hidden.cumsum(0), (0, 0, 1, 0))[batch.query_starts]
    return (sums[1:] - sums[:-1]) / batch.query_starts.diff()[:, None]
