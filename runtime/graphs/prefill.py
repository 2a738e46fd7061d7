"""Graphs of prefills by their tokens: all layers and the final norm. The head runs eagerly, on few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from runtime.forward.batch import ForwardBatch, dummy_extend_batch
from runtime.forward.dp_attention import RunnerKind
from runtime.forward.logits_processor import LogitsOutput
from runtime.graphs.base import Tensors
from runtime.graphs.stage import StageGraphs, named

REQUESTS = 8  # of one captured prefill; more of them run eagerly


class PrefillGraphs(StageGraphs):
    """Serves prefills without a cached prefix: attention is captured for as many keys as there are tokens."""

    name = "prefill"
    kind: ClassVar[RunnerKind] = "prefill_graph"

    def requests(self, size: int) -> int:
        """More where so many of the context's length do not hold the tokens."""
        return max(min(REQUESTS, size), -(-size // self.site.context_length))

    def tokens(self, size: int) -> int:
        return size

    @property
    def pieces(self) -> int:
        return 1 if self.site.runtime.whole_prefills else 1 + sum(map(self._breaks, self.decoder.layer_ids))

    def _breaks(self, layer: int) -> int:
        """Attention and recurrences run between two pieces, and a later round attends twice. Where a
        recurrence does not, captured_layers.py has no prefills."""
        model = self.decoder.model
        has_two = model.gates_rounds and layer >= model.own_layers
        return 2 if has_two else int(model.keeps_tokens(layer) or model.is_recurrent(layer))

    @property
    def tokens_each(self) -> int:
        return 0

    def size_of(self, batch: ForwardBatch) -> int:
        return batch.num_tokens

    def can_run(self, batch: ForwardBatch) -> bool:
        if any(batch.extend_prefix_lens or ()) or not super().can_run(batch):
            return False
        return batch.num_requests <= self.requests(self.graph_size(batch))

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_extend_batch(size, self.site.context_length, self.site.torch_device)

    def make_last_outputs(self, rows: int) -> Tensors:
        build = self.decoder.build
        shape = (rows, self.decoder.model.hidden_size)
        names = ("hidden", *map(_captured, range(len(self.decoder.captures))))
        return {name: torch.zeros(shape, dtype=build.dtype, device=build.device) for name in names}

    def compute(self, batch: ForwardBatch) -> Tensors:
        state = self.decoder.run_layers(batch, self.kv, self.state_of(batch.num_tokens))
        if not self.decoder.is_last:
            return named(state)
        captured = {_captured(number): rows for number, rows in enumerate(state.captured)}
        return {"hidden": self.decoder.last_norm(state), **captured}

    def finish(self, results: Tensors, batch: ForwardBatch) -> LogitsOutput:
        assert self.decoder.logits is not None
        captured = [rows for name, rows in results.items() if name != "hidden"]
        return self.decoder.logits.forward(results["hidden"], batch, captured)

    def _fill(self, batch: ForwardBatch, size: int) -> ForwardBatch:
        return replace(super()._fill(batch, size), max_seq_len=size)


def _captured(number: int) -> str:
    return f"captured {number}"
