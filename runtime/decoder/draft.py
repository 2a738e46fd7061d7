"""The draft model of speculative decoding: one more layer, with the target's embedding and head.

Its input is the next token's embedding beside the target's hidden state. Its weights are random, because a
start needs only their size.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from runtime.decoder.decoder import Decoder
from runtime.decoder.layer import StageState
from runtime.forward.batch import ForwardBatch
from runtime.forward.comm import Communicator
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput
from runtime.layers.loading import fill_dummy
from runtime.layers.rope import RopeTables
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.sizes.own_layer import drafting, drafting_layer


class DraftModel(nn.Module):
    """The draft. It has its own embedding and head at first, as in a checkpoint, and later the target's."""

    def __init__(
        self,
        model: ModelConfig,
        runtime: RuntimeConfig,
        comm: Communicator,
        device: torch.device,
        ropes: RopeTables | None = None,
    ) -> None:
        """`ropes` are the target's rotary tables, which the draft uses too."""
        super().__init__()
        model = drafting(model)
        self.layer_ids = (drafting_layer(model),)
        self.decoder = Decoder(model, runtime, comm, device, self.layer_ids, ropes=ropes)
        self.embedding = self.decoder.embedding
        size, build = model.hidden_size, self.decoder.build
        self.token_norm = build.norm("token_norm", size)
        self.hidden_norm = build.norm("hidden_norm", size)
        weight = torch.empty(size, 2 * size, dtype=build.dtype, device=device)
        self.mix = nn.Parameter(weight, requires_grad=False)
        self.decoder.load_dummy()
        for name, parameter in self.named_parameters():
            if not name.startswith("decoder."):
                fill_dummy(name, parameter.data)

    def share_tables(self, target: Decoder) -> None:
        self.embedding = target.embedding or self.embedding
        self.decoder.embedding = None
        if target.head is not None:
            self.decoder.head = target.head
            self.decoder.logits = target.logits_of(target.head, keep_hidden=True)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KVPool, hidden: torch.Tensor | None) -> LogitsOutput:
        assert self.embedding is not None and hidden is not None
        embedded = self.embedding(batch.input_ids, self.decoder.comm)
        parts = [self.token_norm(embedded), self.hidden_norm(hidden)]
        state = StageState(F.linear(torch.cat(parts, dim=-1), self.mix))
        return self.decoder.run_head(self.decoder.run_layers(batch, kv, state), batch)


def next_step(batch: ForwardBatch, tokens: torch.Tensor, step: int, slots: torch.Tensor) -> ForwardBatch:
    """Return the batch of the draft's token number `step`: the positions move on by that many tokens."""
    return replace(
        batch,
        input_ids=tokens,
        out_cache_loc=slots,
        positions=batch.positions + step,
        seq_lens=batch.seq_lens + step,
    )
