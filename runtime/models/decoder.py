"""A decoder from a config: the layers of one pipeline stage, as one rank of a deployment holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from runtime.devices.layer_loop import each_layer
from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import set_dp_buffer_len
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput, LogitsProcessor
from runtime.forward.pooler import Pooler
from runtime.layers.embedding import TokenEmbedding, VocabTable, multiplied_in_fp32
from runtime.layers.linear import Linear
from runtime.layers.loading import Piece, draw_as_sglang, fill_dummy, load
from runtime.layers.ngrams import token_windows
from runtime.layers.recurrence import Rows
from runtime.models.added_rows import AddedRows
from runtime.models.bank import Banks
from runtime.models.block_attention import BlockAttention
from runtime.models.build import make_build
from runtime.models.canvas import SelfConditioning
from runtime.models.checkpoint import Checkpoint
from runtime.models.crossing_layer import layer_of
from runtime.models.experts import Experts
from runtime.models.gated_residual import GatedResidual
from runtime.models.host_weights import HostWeights
from runtime.models.kimi_delta import KimiDelta
from runtime.models.layer import DecoderLayer, StageState
from runtime.models.layer_inputs import LayerInputs
from runtime.models.mla import LatentAttention
from runtime.models.mlp import MoELayer
from runtime.models.narrow_tables import out_of_rows
from runtime.models.places import Places
from runtime.models.predictions import first_streams
from runtime.models.rope_tables import RopeTables
from runtime.models.rounds import again, parts_of_rounds
from runtime.models.scaled_entry import last_norm
from runtime.models.scores import Dense, Scores
from runtime.models.skips import Skips
from runtime.models.snapshots import Mixture, Snapshots
from runtime.models.streams import stream_end
from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.dispatch import Dispatcher
from runtime.moe.dispatcher import make_dispatcher
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import Unsupported
from runtime.server.layer_kinds import layer_kind
from runtime.server.ngrams import has_ngrams
from runtime.server.parallel import embeds_twice


class Decoder(nn.Module):
    """`layers` numbers the layers it has: those of a whole stage, or one of each kind (`sample_layers`)."""

    def __init__(
        self,
        model: ModelConfig,
        runtime: RuntimeConfig,
        comm: Communicator,
        device: torch.device,
        layers: Sequence[int],
        dispatcher: Dispatcher | None = None,
        captures: Sequence[int] = (),
        ropes: RopeTables | None = None,
        host: HostWeights | None = None,
    ) -> None:
        super().__init__()
        obstacles = model.obstacles if device.type == "meta" else (*model.obstacles, *model.uncomputed)
        if obstacles:
            raise Unsupported(obstacles[0])
        if model.rounds > 1 and comm.size("pp") > 1:
            raise Unsupported("its layers run in rounds: a later one begins on the first stage")
        if layers and model.shares_choice(layers[0]):
            raise Unsupported(
                f"a stage begins with layer {layers[0]}, which sees what the one before chose: this runtime "
                "passes no choice from stage to stage"
            )
        self.model, self.comm, self.captures = model, comm, frozenset(captures)
        build = make_build(model, runtime, comm, device)
        self.build, self.layer_ids = build, tuple(layers)
        self.is_first = comm.layout.pp_rank == 0
        self.is_last = comm.layout.pp_rank == comm.size("pp") - 1
        dropped = self.make_embedding() if self.is_first and embeds_twice(model.model_type) else None
        self.embedding = self.make_embedding() if self.is_first and model.has_tables else None
        del dropped
        places = model.places if self.is_first else None
        self.places = None if places is None else Places(build, places)
        added = model.added if self.is_first else None
        self.added = None if added is None else AddedRows(build, added)
        given = model.layer_inputs if self.is_first else None
        self.inputs = None if given is None else LayerInputs(build, given)
        self.begins = first_streams(build) if self.is_first else None
        self.conditioning = SelfConditioning(build) if model.canvas and self.is_first else None
        dispatcher = dispatcher or make_dispatcher(model, runtime, comm, build.dtype, device)
        self.backend: MoEBackend | None = None
        if any(model.layer_kinds[layer] == "moe" for layer in layers):
            self.backend = make_backend(runtime.moe_runner_backend, model, runtime, comm.layout, device)
        self.ropes = ropes or RopeTables(device, model.by_transformers)
        shared = dispatcher, self.backend, self.ropes, Banks()
        self._stack: list[DecoderLayer] = []
        for layer in layers:
            is_new = layer < model.own_layers
            made = layer_of(build, layer, *shared) if is_new else again(build, layer, self._stack)
            if host is not None:
                host.take(made)
            self._stack.append(made)
        self.layers = nn.ModuleList(self._stack)
        has_norm = self.is_last and model.norms not in ("none", "late")
        self.norm = last_norm(build) if has_norm else None
        has_streams = model.streams is not None or model.predictions is not None
        self.streams = stream_end(build) if has_streams and self.is_last else None
        reads_kept = model.snapshots is not None and self.is_last
        self.reads = Mixture(build, "model.output_attn_res") if reads_kept else None
        self.out = out_of_rows(build) if self.is_last else None
        has_head = self.is_last and model.scores is None and model.has_tables
        self.head = self.make_head() if has_head else None
        scores = model.scores if self.is_last else None
        self.scores = Scores(build, scores) if scores and scores.names else None
        self.dense = Dense(build, scores.dense) if scores and scores.dense else None
        self.logits = self._answers(runtime) if self.is_last and model.has_tables else None

    def _answers(self, runtime: RuntimeConfig) -> LogitsProcessor | Pooler:
        if self.head is None or runtime.embeds:
            return Pooler(self.model.scores, self.scores, self.dense)
        keep_hidden = runtime.speculative is not None and runtime.speculative.shows_rows
        how = keep_hidden, self.model.multipliers, multiply_of(self.model), runtime.head_over
        return LogitsProcessor(self.model.logits_size, self.comm, self.head, *how)

    def make_embedding(self) -> TokenEmbedding:
        """Under DP attention every group embeds its own tokens, or each rank of it all of them."""
        name, build = self.model.names.embedding, self.build
        plain = self.model.embeds_whole
        is_whole = plain or (self.model.whole_embedding and self.comm.size("attn_dp") > 1)
        group = "" if is_whole else "attn_tp"
        dtype = self._head_dtype() if self.model.tie_word_embeddings else build.dtype
        own = None
        if self.model.embedding_norm is not None:
            own = build.norm(self.model.embedding_norm, self.model.hidden_size)
        how = dtype, build.device
        embedding = TokenEmbedding(name, self.model, self.comm, group, *how, pads=not plain, own_norm=own)
        if self.model.norms_embedding:
            embedding.take_norm(self.model.rms_eps)
        return embedding

    def _head_dtype(self) -> torch.dtype:
        return torch.float32 if self.model.head_in_fp32 else self.build.dtype

    def make_head(self) -> VocabTable:
        is_tied = self.model.tie_word_embeddings
        is_apart = self.model.embeds_whole and self.comm.size("pp") > 1  # srt/models/gemma4_causal.py
        if is_tied and not self.model.holds_head and not is_apart:
            self._drop_head()
            return self.make_embedding() if self.embedding is None else self.embedding
        build, scheme = self.build, self.build.head_scheme()
        name = self.model.names.embedding if is_tied else self.model.names.head
        model = replace(self.model, vocab_size=self.model.logits_size)
        group = "attn_tp" if build.runtime.head_over == "a group" else "tp"
        padding = self.model.head_padding
        how = self._head_dtype(), build.device, scheme
        head = VocabTable(name, model, self.comm, group, *how, padding=padding)
        head.is_normed = self.model.normed_head and not is_tied
        head.has_unit_rows = self.model.unit_head and not is_tied
        if self.model.head_bias:
            head.take_bias()
        return head

    def _drop_head(self) -> None:
        """srt/models/transformers.py makes one in any case, and ties it then."""
        if self.model.by_transformers:
            VocabTable("", self.model, self.comm, "tp", self.build.dtype, self.build.device)

    @torch.no_grad()
    def forward(
        self, batch: ForwardBatch, pool: KVPool, state: StageState | None = None
    ) -> LogitsOutput | StageState:
        """Logits from the last stage, from others the state for the next; `state` is the previous stage's."""
        state = self.run_layers(batch, pool, state)
        return self.run_head(state, batch) if self.is_last else state

    def run_layers(self, batch: ForwardBatch, pool: KVPool, state: StageState | None = None) -> StageState:
        """Everything before the final norm: what a prefill graph captures."""
        self._publish_token_counts(batch)
        if self.embedding is not None:
            state = self._entered(self.embedding(batch.input_ids, self.comm), batch)
        assert state is not None, "a later pipeline stage needs the state of the one before"
        state, inputs, windows = self._with_room(state), state.inputs, self._windows(batch, pool)
        captured: list[torch.Tensor] = []
        skips, tables = Skips(self.model.skips, self.layer_ids), self.ropes.tables(batch.positions)
        for layer in each_layer(self._stack, kind=self._kind):
            if layer.number and layer.number % self.model.own_layers == 0:
                state = self._next_round(state)
            state = skips.given(layer.number, state)
            if layer.number in self.captures:
                captured.append(state.total())
            given = windows if inputs is None else inputs[:, layer.number]
            table = None if layer.table_name is None else tables[layer.table_name]
            state = layer.begun(state, batch)
            state = layer(state, batch, pool, table, given)
            if self.model.adds_at_once and state.residual is not None:
                state = StageState(state.total())
        adds_nothing = self.model.scales_layers or self.model.adds_at_once
        if adds_nothing and not self.is_last:  # two tensors are passed on, as by all
            state = replace(state, residual=torch.zeros_like(state.hidden), inputs=inputs)
        return replace(state, captured=tuple(captured)) if captured else state

    def _next_round(self, state: StageState) -> StageState:
        if state.residual is None and not self.model.norms_rounds:
            return state
        rows = state.total()
        return StageState(self.norm(rows) if self.norm is not None and self.model.norms_rounds else rows)

    def _entered(self, hidden: torch.Tensor, batch: ForwardBatch) -> StageState:
        """All streams begin alike."""
        if self.places is not None:
            hidden = self.places(hidden, batch.positions)
        if self.added is not None:
            hidden = self.added(hidden, batch)
        if self.model.streams is not None:
            return StageState(hidden[:, None].repeat(1, self.model.streams.count, 1))
        inputs = self.inputs(batch.input_ids, hidden) if self.inputs else None
        if self.begins is None:
            return StageState(hidden, inputs=inputs)
        streams, made = self.begins(hidden)
        return StageState(streams, inputs=inputs, begun=made)

    def _with_room(self, state: StageState) -> StageState:
        """For the residuals that layers here keep, behind those that are kept."""
        if self.model.snapshots is None:
            return state
        given = None if state.kept is None else state.kept.rows
        return replace(state, kept=Snapshots.opened(state.hidden, self._kept(sent=True), given))

    def _kept(self, sent: bool) -> int:
        assert self.model.snapshots is not None
        return self.model.snapshots.before(self.layer_ids[-1] + 1 if sent else self.layer_ids[0])

    def _windows(self, batch: ForwardBatch, pool: KVPool) -> torch.Tensor | None:
        """Each token and those before it, where a layer has n-grams. Their last are kept."""
        config = self.model.ngrams
        if config is None or not any(has_ngrams(config, layer) for layer in self.layer_ids):
            return None
        assert pool.states is not None
        return token_windows(batch.input_ids, pool.states.tokens, Rows.of(batch), config.end)

    def _kind(self, layer: DecoderLayer) -> object:
        return (layer.kind, layer.number in self.captures, layer.keeps, layer.away)

    def run_head(self, state: StageState, batch: ForwardBatch) -> LogitsOutput:
        assert self.logits is not None
        normed = self.last_norm(state)
        rows = normed if self.out is None else self.out(normed)
        rows = rows.float() if self.model.rows_in_fp32 else rows
        return self.logits.forward(rows, batch, state.captured)

    def last_norm(self, state: StageState) -> torch.Tensor:
        if self.reads is not None and state.kept is not None:
            row = self.reads(state.hidden, state.kept)
        else:
            row = state.hidden if self.streams is None else self.streams(state.hidden)
        if self.norm is None:
            return row if state.residual is None else state.total()
        return self.norm(row) if state.residual is None else self.norm.add(row, state.residual)

    def _publish_token_counts(self, batch: ForwardBatch) -> None:
        if batch.dp is not None:
            batch.dp.publish()
        elif self.comm.size("attn_dp") == 1:
            is_extend = batch.mode is ForwardMode.EXTEND
            set_dp_buffer_len(batch.num_tokens, batch.num_tokens, True, is_extend=is_extend)
        else:
            raise ValueError("a batch under DP attention needs its token counts: see plan_dp_tokens")

    def tell_free(self, nbytes: int) -> None:
        """Before the first forward: experts may be laid out by it."""
        if self.backend is not None:
            self.backend.tell_free(nbytes)

    def empty_state(self, tokens: int, sent: bool = False) -> StageState:
        """Room for what the previous stage sends, or for what this one does."""
        made: dict[str, Any] = {"dtype": self.build.dtype, "device": self.build.device}
        width, given, moe = self.model.hidden_size, self.model.layer_inputs, self.model.moe
        if self.model.streams is not None:
            return StageState(torch.empty(tokens, self.model.streams.count, width, **made))
        if self.model.predictions is not None and given is not None:
            hidden = torch.empty(self.model.predictions.count, tokens, width, **made)
            return StageState(hidden, inputs=hidden.new_empty(tokens, self.model.num_layers, given.width))
        hidden, residual = torch.empty(tokens, width, **made), torch.empty(tokens, width, **made)
        if self.model.snapshots is not None:
            kept = hidden.new_empty(tokens, self._kept(sent), width)
            return StageState(hidden, kept=Snapshots(kept, kept.shape[1]))
        if moe is not None and moe.router_width is not None:
            return StageState(hidden, residual, routed=hidden.new_empty(tokens, moe.router_width))
        inputs = None if given is None else hidden.new_empty(tokens, self.model.num_layers, given.width)
        return StageState(hidden, residual, inputs=inputs)

    def reach(self, positions: int) -> None:
        """DeepSeek-V4 turns by freqs_cis, that SGLang leaves as long as they are."""
        if self.model.compressed is None:
            self.ropes.reach(positions)

    def load_hf(self, folder: Path) -> None:
        """Weights from a `save_pretrained` folder: this rank's part of them."""
        load(self.pieces(), Checkpoint(folder))
        self._finalize()

    def load_dummy(self, seed: int = 0) -> None:
        """Random weights of the exact sizes."""
        for name, parameter in self.named_parameters():
            fill_dummy(name, parameter.data, seed)
            if parameter.is_meta and self.build.runtime.random_weights:
                draw_as_sglang(parameter.data)
        self._finalize()

    def pieces(self) -> Iterator[Piece]:
        for part in (
            self.embedding,
            self.places,
            self.added,
            self.inputs,
            self.begins,
            self.conditioning,
            self.ropes,
            *parts_of_rounds(self.model, self._stack),
            self.streams,
            self.reads,
            self.norm,
            self.out,
            None if self.head is self.embedding else self.head,
            self.scores,
            self.dense,
        ):
            if part is not None:
                yield from part.pieces()

    def _finalize(self) -> None:
        """What attention makes stays; made between the experts' temporaries, it would keep their segments."""
        for module in self.modules():
            if isinstance(module, BlockAttention):
                module.join()
        modules = list(self.modules())
        for module in modules:
            if isinstance(module, Linear):
                module.finish()
        for module in modules:
            if isinstance(module, (KimiDelta, LatentAttention, Mixture, GatedResidual)):
                module.finalize()
        for module in modules:
            if isinstance(module, (Linear, Experts)) and self.build.device.type == "meta":
                module.relay()
        for module in modules:
            if isinstance(module, MoELayer):
                module.finalize()


def multiply_of(model: ModelConfig) -> Callable[..., torch.Tensor]:
    """By its head."""
    return multiplied_in_fp32 if model.logits_in_fp32 else F.linear


def sample_layers(model: ModelConfig) -> tuple[int, ...]:
    """One layer of each kind, and those whose keys they read: what tuning needs of a model. Of n-grams there
    is nothing to tune, and their table is large."""
    every = [layer for layer in range(model.num_layers) if not has_ngrams(model.ngrams, layer)]
    kinds = {layer_kind(model, layer): layer for layer in reversed(every)}
    chosen = set(kinds.values())
    return tuple(sorted(chosen | {model.key_layer(layer) for layer in chosen}))
