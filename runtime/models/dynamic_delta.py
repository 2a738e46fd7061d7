"""A gated delta rule whose values are convolved by taps that a small MLP makes of each token (srt/models/
jet_nemotron.py). Heads lie on attention's ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import GatedNorm, RecurrentInputs, Rows, convolve_by_tokens, recur
from runtime.models.build import Build
from runtime.models.recurrent_parts import head_vector, out_of_channels
from runtime.server.recurrent import DynamicDeltaConfig


class DynamicDelta(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, DynamicDeltaConfig)
        self.config, self.layer_id, self.name = config, layer_id, name
        self.heads = shard(config.num_heads, ranks, rank, "the number of linear heads")
        keys, values = (self._rows(width) for width in (config.key_head_dim, config.value_head_dim))
        own = (keys, keys, values, self.heads, self.heads, values)
        self.sizes = [length(rows) for rows in own]
        hidden = slice(0, build.model.hidden_size)
        parts = [Part(f"{name}.{one}_proj", rows) for one, rows in zip("qkvabg", own, strict=True)]
        self.projection = build.linear(parts, hidden, rows_over=ranks)
        taps, narrow = f"{name}.dynamic_conv1d.kernel_generator", slice(0, config.generator_size)
        self.down = build.linear([Part(f"{taps}.w1", narrow)], hidden)
        made = [Part(f"{taps}.w2", self._rows(config.value_head_dim * config.conv_kernel))]
        self.up = build.linear(made, narrow, bias=True, rows_over=ranks)
        self.rate = head_vector(length(self.heads), torch.float32, build)
        self.bias = head_vector(length(self.heads), build.dtype, build)
        width, how = config.value_head_dim, (build.dtype, build.device)
        self.norm = GatedNorm(f"{name}.o_norm", width, width, config.norm_eps, *how, gate_first=False)
        self.out = out_of_channels(build, f"{name}.o_proj", values, bias=False)

    def _rows(self, width: int) -> slice:
        return slice(self.heads.start * width, self.heads.stop * width)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        q, k, v, step, strength, gate = self.projection(x).split(self.sizes, dim=-1)
        taps = self.up(F.silu(self.down(x))).unflatten(-1, (-1, config.conv_kernel))
        kept = state.conv[:, -v.shape[1] :]  # behind room for queries and keys, which nobody keeps
        v = convolve_by_tokens(v, taps, kept, rows)
        inputs = RecurrentInputs(
            F.silu(q).unflatten(-1, (-1, config.key_head_dim)),
            F.silu(k).unflatten(-1, (-1, config.key_head_dim)),
            v.unflatten(-1, (-1, config.value_head_dim)),
            step.contiguous(),
            strength.contiguous(),
            self.rate,
            self.bias,
        )
        answer = recur(inputs, state.recurrent, rows)
        opening = gate.reshape(-1, config.value_head_dim)
        return self.out(self.norm(answer.flatten(0, 1), opening).view(x.shape[0], -1))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.down, self.up, self.norm, self.out):
            yield from part.pieces()
        yield Piece(self.rate, (Source(f"{self.name}.A_log", (self.heads,)),))
        yield Piece(self.bias, (Source(f"{self.name}.dt_bias", (self.heads,)),))
