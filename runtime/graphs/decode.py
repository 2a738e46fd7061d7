"""Graphs of whole decode steps, of the verify steps of speculative decoding, and of prefills."""

from dataclasses import replace
from typing import ClassVar

import torch

from runtime.decoder.decoder import StageState
from runtime.forward.batch import ForwardBatch, dummy_decode_batch, dummy_extend_batch
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


REQUESTS = 8  # of one captured prefill


class PrefillGraphs(StageGraphs):
    """Graphs of prefills without a cached prefix: attention is captured with as many keys as tokens."""

    name = "prefill"
    kind: ClassVar[RunnerKind] = "prefill_graph"
    tokens_each = 0
    has_head = False

    def requests(self, size: int) -> int:
        """Return `REQUESTS`, or more if the context is so short that they would not hold the tokens."""
        return max(min(REQUESTS, size), -(-size // self.site.context_length))

    def tokens(self, size: int) -> int:
        return size

    @property
    def pieces(self) -> int:
        """A server captures a prefill in pieces, because attention and recurrences run between two graphs."""
        model = self.decoder.model
        breaks = (model.keeps_tokens(one) or model.is_recurrent(one) for one in self.decoder.layer_ids)
        return 1 + sum(breaks)

    def size_of(self, batch: ForwardBatch) -> int:
        return batch.num_tokens

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_extend_batch(size, self.site.context_length, self.site.torch_device)

    def make_last_outputs(self, rows: int) -> Tensors:
        return {"hidden": self.room(rows, self.decoder.model.hidden_size)}

    def compute(self, batch: ForwardBatch) -> Tensors:
        state = self.decoder.run_layers(batch, self.kv, self.state_of(batch.num_tokens))
        return {"hidden": self.decoder.last_norm(state)} if self.decoder.is_last else state.parts

    def _fill(self, batch: ForwardBatch, size: int) -> ForwardBatch:
        return replace(super()._fill(batch, size), max_seq_len=size)
