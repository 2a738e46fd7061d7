"""One layer of a decoder: what mixes a request's tokens, what works on each alone, or both, or either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.loading import Piece, Source
from runtime.models.added_convolution import added_convolution
from runtime.models.bank import Banks
from runtime.models.build import Build
from runtime.models.chained_experts import ChainedExperts
from runtime.models.detour import Detour
from runtime.models.experts_beside import ExpertsBeside
from runtime.models.gqa import GroupedQueryAttention
from runtime.models.layer_inputs import LayerInput
from runtime.models.layer_parts import around_mixer, around_own_mlp, beside_of, mixer_of, mlp_of, rope_of
from runtime.models.mla import LatentAttention
from runtime.models.mlp import DenseLayer, MoELayer
from runtime.models.ngrams import Ngrams
from runtime.models.predictions import Predictions
from runtime.models.rope_tables import RopeTables
from runtime.models.snapshots import Mixture, Snapshots
from runtime.models.streams import around
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.server.layer_kinds import layer_kind
from runtime.server.ngrams import has_ngrams
from runtime.server.tensor_names import within

_SQRT_2 = 2**0.5


@dataclass(frozen=True, slots=True, eq=False)
class StageState:
    """Between layers and between pipeline stages: the last answer, not yet added to its residual; or the
    residual streams [T, streams, H], or those that are predicted [streams, T, H]."""

    hidden: torch.Tensor
    residual: torch.Tensor | None = None  # None before the first layer
    captured: tuple[torch.Tensor, ...] = ()  # what a draft is given of the layers before
    beside: torch.Tensor | None = None  # what experts answered, for the end of the next layer
    inputs: torch.Tensor | None = None  # of each layer [T, layers, width], between stages
    kept: Snapshots | None = None  # residuals of layers before
    selected: torch.Tensor | None = None  # what the next layer sees, where it shares its choice
    begun: tuple[torch.Tensor, ...] = ()  # what predicted streams were made of
    routed: torch.Tensor | None = None  # what the last router made of each token, for the next one

    def total(self) -> torch.Tensor:
        return self.hidden.clone() if self.residual is None else self.hidden + self.residual


class DecoderLayer(nn.Module):
    scale: torch.Tensor | None
    canvas_scale: torch.Tensor | None  # of a canvas, where the other is of a prompt
    away: tuple[int, ...] = ()  # bytes of its matrices that lie in the host's memory

    def __init__(
        self,
        build: Build,
        layer_id: int,
        dispatcher: Dispatcher,
        backend: MoEBackend | None,
        ropes: RopeTables,
        banks: Banks,
    ) -> None:
        super().__init__()
        model, name, half = build.model, build.model.layer_name(layer_id), build.model.half_name(layer_id)
        self.number, self.comm, self.norms = layer_id, build.comm, model.norms
        self.kind = layer_kind(model, layer_id)
        self.mixer = mixer_of(build, layer_id, name)
        self.table_name = ropes.lay(rope_of(model, layer_id))
        self.mixer_norms = None if self.mixer is None else around_mixer(build, layer_id)
        self.beside = beside_of(build, layer_id, dispatcher, backend)
        mlp = within(name, f"{model.names.mlp}{half}")
        self.mlp = mlp_of(build, layer_id, mlp, dispatcher, backend, banks)
        self._turn_by_mixed(build, layer_id, ropes)
        self.mlp_norms = None if self.mlp is None else around_own_mlp(build, layer_id)
        scale = torch.ones(1, dtype=build.dtype, device=build.device) if model.scales_layers else None
        self.register_buffer("scale", scale)
        self.register_buffer("canvas_scale", scale.clone() if model.canvas and scale is not None else None)
        self.mixer_added = added_convolution(build, layer_id, "attention")
        self.mlp_added = added_convolution(build, layer_id, "mlp")
        self.input = None if model.layer_inputs is None else LayerInput(build, name, model.layer_inputs.width)
        self.name = name
        self.shares_choices = any(map(model.shares_choice, range(model.num_layers)))
        self.mixer_streams, self.mlp_streams = around(build, name, "attn"), around(build, name, "mlp")
        self.ngrams = Ngrams(build, layer_id, f"{name}.ple") if has_ngrams(model.ngrams, layer_id) else None
        self.keeps = model.snapshots is not None and layer_id % model.snapshots.every == 0
        self.mixer_reads = None if model.snapshots is None else Mixture(build, f"{name}.self_attention_res")
        self.mlp_reads = None if model.snapshots is None else Mixture(build, f"{name}.mlp_res")
        predicts = model.predictions
        self.predictions = None if predicts is None else Predictions(build, f"{name}.altup", predicts)
        self.detour = None if predicts is None else Detour(build, f"{name}.laurel", predicts.rank)

    def _turn_by_mixed(self, build: Build, layer_id: int, ropes: RopeTables) -> None:
        """By another attention than the one before, which SGLang drops (srt/models/interns1pro.py)."""
        rope, before = rope_of(build.model, layer_id), self.mixer
        if rope is not None and rope.mixed is not None and isinstance(before, GroupedQueryAttention):
            made = GroupedQueryAttention(build, layer_id, before.name)
            made.mixed = ropes.mix(rope, made.kv_heads)
            self.mixer = made

    def begun(self, state: StageState, batch: ForwardBatch) -> StageState:
        """What it is given, as it begins with it."""
        return state

    def forward(
        self,
        state: StageState,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
        given: torch.Tensor | None = None,
    ) -> StageState:
        """`given` [T, width]: this layer's inputs, or a token and those before it."""
        hidden, residual, routed = state.hidden, state.residual, state.routed
        if self.norms in ("parallel", "beside"):
            return self._side_by_side(state, batch, pool, table)
        if self.mixer_streams is not None:
            if self.ngrams is not None and given is not None and hidden.shape[0]:
                state = replace(state, hidden=self.ngrams(hidden, given, batch, pool))
            return self._over_streams(state, batch, pool, table)
        if self.predictions is not None and given is not None:
            return self._over_predictions(self.predictions, state, batch, pool, table, given)
        if state.kept is not None:
            return self._over_snapshots(state.hidden, state.kept, batch, pool, table)
        if self.mixer is not None and self.mixer_norms is not None:
            hidden, residual = self.mixer_norms.enter(hidden, residual)
            if hidden.shape[0]:
                hidden = self.comm.all_reduce(self.mixer(hidden, batch, pool, table), "attn_tp")
            hidden = self.mixer_norms.leave(hidden)
            if self.mixer_added is not None and hidden.shape[0]:
                hidden = self.mixer_added(hidden, batch, pool)
        if self.mlp is not None and self.mlp_norms is not None:
            hidden, residual = self.mlp_norms.enter(hidden, residual)
            if self.beside is not None:
                beside = self.beside(hidden.clone())
                return StageState(self.mlp(hidden), residual, beside=beside)
            if isinstance(self.mlp, ChainedExperts):
                hidden, routed = self.mlp.chained(hidden, routed)
            else:
                hidden = self.mlp(hidden, residual) if self._has_both else self.mlp(hidden)
            hidden = self.mlp_norms.leave(hidden)
            if self.mlp_added is not None and hidden.shape[0]:
                hidden = self.mlp_added(hidden, batch, pool)
        if self.scale is not None and residual is not None:
            rows = residual.add_(hidden)
            if self.input is not None and given is not None:
                rows = rows.add_(self.input(rows, given))
            return StageState(rows.mul_(self.scale))
        hidden = hidden if state.beside is None else hidden + state.beside
        return StageState(hidden, residual, routed=routed)

    @property
    def _has_both(self) -> bool:
        return isinstance(self.mlp, ExpertsBeside)

    def _side_by_side(
        self, state: StageState, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> StageState:
        """Attention and MLP of the same rows, which one norm or two have normed."""
        assert self.mixer is not None and self.mixer_norms is not None and self.mlp is not None
        normed, residual = self.mixer_norms.enter(state.hidden, state.residual)
        answer = self.mlp(normed if self.mlp_norms is None else self.mlp_norms.enter(residual, None)[0])
        if normed.shape[0]:
            answer = self.comm.all_reduce(self.mixer(normed, batch, pool, table), "attn_tp").add_(answer)
        return StageState(answer, residual)

    def _over_streams(
        self, state: StageState, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> StageState:
        """Both parts read one row of all streams, and answer to each of them: [T, streams, H]."""
        assert self.mixer is not None and self.mixer_norms is not None and self.mixer_streams is not None
        assert isinstance(self.mlp, (DenseLayer, MoELayer))
        assert self.mlp_norms is not None and self.mlp_streams is not None
        streams, selected = state.hidden, state.selected
        row, way = self.mixer_streams.collapse(streams)
        row = self.mixer_norms.enter(row, None)[0]
        if row.shape[0] and isinstance(self.mixer, LatentAttention) and self.shares_choices:
            row, selected = self.mixer.attend(row, batch, pool, table, selected)
            row = self.comm.all_reduce(row, "attn_tp")
        elif row.shape[0]:
            row = self.comm.all_reduce(self.mixer(row, batch, pool, table), "attn_tp")
        streams = self.mixer_streams.spread(row, streams, way)
        row, way = self.mlp_streams.collapse(streams)
        row = self.mlp_norms.enter(row, None)[0]
        row = self.mlp(row, batch.input_ids) if isinstance(self.mlp, MoELayer) else self.mlp(row)
        return StageState(self.mlp_streams.spread(row, streams, way), selected=selected)

    def _over_predictions(
        self,
        predictions: Predictions,
        state: StageState,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
        given: torch.Tensor,
    ) -> StageState:
        """Both parts, one after the other, on one of the streams: [streams, T, H]. What either is given stays
        until the layer is through, as in SGLang."""
        assert self.mixer is not None and self.mixer_norms is not None and self.detour is not None
        assert isinstance(self.mlp, DenseLayer) and self.mlp_norms is not None and self.input is not None
        predicted = predictions.predict(state.hidden)
        active = predicted[predictions.config.active]
        entered = self.mixer_norms.enter(active, None)[0]
        beside = self.detour(entered)
        answer = entered
        if entered.shape[0]:
            answer = self.comm.all_reduce(self.mixer(entered, batch, pool, table), "attn_tp")
        answer = self.mixer_norms.leave(answer)
        attended = active + answer
        rows = (attended + beside) / _SQRT_2
        normed = self.mlp_norms.enter(rows, None)[0]
        computed = rows + self.mlp_norms.leave(self.mlp(normed))
        corrected = predictions.correct(predicted, computed)
        corrected[1:] += self.input(predictions.read(corrected), given)
        return replace(state, hidden=corrected)

    def _over_snapshots(
        self,
        residual: torch.Tensor | None,
        kept: Snapshots,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
    ) -> StageState:
        """Both parts read a mean of the residual and of those that are kept, one of which it may become."""
        assert residual is not None and self.mixer is not None and self.mixer_norms is not None
        assert isinstance(self.mlp, (DenseLayer, MoELayer)) and self.mlp_norms is not None
        assert self.mixer_reads is not None and self.mlp_reads is not None
        row = self.mixer_norms.enter(self.mixer_reads(residual, kept), None)[0]
        if self.keeps:
            kept.keep(residual)
            residual = None
        if row.shape[0]:
            row = self.comm.all_reduce(self.mixer(row, batch, pool, table), "attn_tp")
        residual = row if residual is None else residual + row
        row = self.mlp_norms.enter(self.mlp_reads(residual, kept), None)[0]
        return StageState(residual + self.mlp(row), kept=kept)

    def pieces(self) -> Iterator[Piece]:
        parts = (self.mixer_norms, self.mixer, self.mlp_norms, self.mlp, self.beside, self.input, self.ngrams)
        for part in (
            *parts,
            self.predictions,
            self.detour,
            self.mixer_added,
            self.mlp_added,
            self.mixer_streams,
            self.mlp_streams,
            self.mixer_reads,
            self.mlp_reads,
        ):
            if part is not None:
                yield from part.pieces()
        if self.canvas_scale is not None and self.scale is not None:
            encoder = self.name.replace(".decoder.", ".encoder.")
            yield Piece(self.scale, (Source(f"{encoder}.layer_scalar"),))
            yield Piece(self.canvas_scale, (Source(f"{self.name}.layer_scalar"),))
        elif self.scale is not None:
            yield Piece(self.scale, (Source(f"{self.name}.layer_scalar"),))
