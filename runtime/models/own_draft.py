"""A draft that is another model than its target: EAGLE's layers, EAGLE3's one, a whole smaller model, or
DFLASH's, which has no tables of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.comm import Communicator, Within
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput, LogitsProcessor
from runtime.layers.embedding import VocabTable
from runtime.layers.loading import fill_dummy
from runtime.models.build import Build
from runtime.models.decoder import Decoder
from runtime.models.gathered import Gathered
from runtime.models.layer import StageState
from runtime.models.rope_tables import RopeTables
from runtime.server.layer_config import FusionConfig
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import kv_heads_per_rank


class Fusion(nn.Module):
    """What the target kept of its layers, one beside the other, as one row of the draft's; or what its last
    made of a token, behind the token's embedding."""

    def __init__(self, build: Build, config: FusionConfig) -> None:
        super().__init__()
        size = build.model.hidden_size
        whole = config.states * config.width + (size if config.beside_token else 0)
        self.states, self.beside_token = config.states, config.beside_token
        self.mix, bias = (
            nn.Parameter(torch.empty(shape, dtype=build.dtype, device=build.device), requires_grad=False)
            for shape in ((size, 0 if config.split else whole), (size,))
        )
        self.bias = bias if config.bias else None
        self.parts = Gathered(build, "fc", size, whole) if config.split else None
        self.whole_norm = build.norm("input_norm", whole) if config.norms_whole else None
        each = config.states if config.norms_each else 0
        self.row_norm = build.norm("hidden_norm", size) if config.drafts_block else None
        self.norms = nn.ModuleList(build.norm(f"fc_norm.{i}", config.width) for i in range(each))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.whole_norm is not None:
            states = self.whole_norm(states)
        if len(self.norms):
            parts = states.chunk(self.states, dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], dim=-1)
        row = F.linear(states, self.mix, self.bias) if self.parts is None else self.parts(states)
        return row if self.row_norm is None else self.row_norm(row)


class OwnDraftModel(nn.Module):
    """Made with tables of its own, as a checkpoint has them, some of which are then its target's."""

    def __init__(
        self,
        own: OwnDraft,
        comm: Communicator,
        device: torch.device,
        seed: int = 0,
        ropes: RopeTables | None = None,
    ) -> None:
        """`ropes`: its target's, whose tables are its own where both turn alike."""
        super().__init__()
        self.own = own
        self.comm = comm if own.parallel.tp == comm.size("tp") else Within(comm, "attn_tp")
        self.layer_ids: Sequence[int] = range(own.model.num_layers)
        fusion = own.model.fusion
        # A whole model hands its next step nothing but tokens.
        runtime = own.runtime if fusion is not None else replace(own.runtime, speculative=None)
        self.decoder = Decoder(own.model, runtime, self.comm, device, self.layer_ids, ropes=ropes)
        self.embedding = self.decoder.embedding
        self.fusion = None if fusion is None else Fusion(self.decoder.build, fusion)
        self.stacked = _stacked(self.decoder) if own.drafts_block else None
        self.words: VocabTable | None = None
        self.decoder.load_dummy(seed)
        self.decoder.reach(runtime.positions)
        for name, parameter in self.named_parameters():
            if name.startswith("fusion."):
                fill_dummy(name, parameter.data, seed)

    @property
    def recurrent_width(self) -> int:
        return self.own.recurrent_width

    @property
    def given_width(self) -> int:
        return self.own.given_width

    def share_tables(self, target: Decoder) -> None:
        """set_embed of srt/models/llama.py: not where one is wider than the other. A whole model keeps its
        own; the words of a block are its target's head's."""
        decoder, model = self.decoder, self.own.model
        decoder.embedding = None
        self.words = target.head if self.own.drafts_block else None
        if model.fusion is None or model.fusion.drafts_block:
            return
        if model.fusion.width == model.hidden_size:
            self.embedding = target.embedding or self.embedding
        if model.takes_head and target.head is not None:
            decoder.head = target.head
        assert decoder.head is not None
        decoder.logits = LogitsProcessor(model.logits_size, self.comm, decoder.head, keep_hidden_states=True)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KVPool, hidden: torch.Tensor | None) -> LogitsOutput:
        return self.answer(self.run_layers(batch, kv, hidden), batch)

    def run_layers(
        self, batch: ForwardBatch, kv: KVPool, hidden: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The normed rows, and what they were before."""
        assert self.embedding is not None
        return self.run_block(batch, kv, self._entered(self.embedding(batch.input_ids, self.comm), hidden))

    def run_block(
        self, batch: ForwardBatch, kv: KVPool, entered: StageState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.decoder.run_layers(batch, kv, entered)
        if self.decoder.norm is None:
            return (rows := state.total()), rows
        assert state.residual is not None
        return self.decoder.norm.add(state.hidden, state.residual), state.residual

    def _entered(self, embedded: torch.Tensor, hidden: torch.Tensor | None) -> StageState:
        if self.fusion is None or hidden is None:
            return StageState(embedded, hidden)
        if self.fusion.beside_token:
            return StageState(self.fusion(torch.cat([embedded, hidden], dim=-1)))
        return StageState(embedded, hidden if hidden.shape[-1] == embedded.shape[-1] else self.fusion(hidden))

    def answer(self, rows: tuple[torch.Tensor, torch.Tensor], batch: ForwardBatch) -> LogitsOutput:
        assert self.decoder.logits is not None
        fusion, (normed, before) = self.own.model.fusion, rows
        kept = () if fusion is None else (normed if fusion.gives_normed else before,)
        return self.decoder.logits.forward(normed, batch, kept)


def _stacked(decoder: Decoder) -> torch.Tensor | None:
    """What makes keys and values of all layers at once of a row: FusedKVMaterializeHelper of
    srt/speculative, of matrices alone."""
    model, build = decoder.model, decoder.build
    attention = model.main_attention
    if attention.bias:
        return None
    heads = kv_heads_per_rank(attention, ParallelConfig(tp=build.comm.size("attn_tp")))
    rows = model.num_layers * 2 * heads * attention.head_dim
    stacked = torch.zeros(rows, model.hidden_size, dtype=build.dtype, device=build.device)
    return stacked.t().contiguous() if build.runtime.release.turns_block_keys else stacked
