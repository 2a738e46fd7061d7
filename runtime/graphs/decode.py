"""Graphs of whole decode steps, and of the verify steps of speculative decoding."""

from __future__ import annotations

from typing import ClassVar

import torch

from runtime.decoder.decoder import StageState
from runtime.forward.batch import ForwardBatch, dummy_decode_batch
from runtime.forward.dp_attention import RunnerKind
from runtime.graphs.base import StageGraphs, Tensors


class DecodeGraphs(StageGraphs):
    name = "decode"
    kind: ClassVar[RunnerKind] = "decode_graph"

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_decode_batch(size, self.width, self.site.torch_device)

    def make_last_outputs(self, rows: int) -> Tensors:
        outputs = {"logits": self.room(rows, self.decoder.model.vocabulary.size, dtype=torch.float32)}
        if self.decoder.logits is not None and self.decoder.logits.keep_hidden_states:
            outputs["hidden"] = self.room(rows, self.decoder.model.hidden_size)
        return outputs

    def compute(self, batch: ForwardBatch) -> Tensors:
        result = self.decoder(batch, self.kv, self.state_of(batch.num_tokens))
        if isinstance(result, StageState):
            return result.parts
        results = {"logits": result.next_token_logits, "hidden": result.hidden_states}
        return {name: tensor for name, tensor in results.items() if tensor is not None}
