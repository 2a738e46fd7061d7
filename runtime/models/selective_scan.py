"""Mamba's first mixer in place of attention, its channels split over the attention-TP group."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import RecurrentInputs, Rows, recur
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution, head_vector, out_of_channels
from runtime.server.selective_scan import SelectiveScanConfig


class SelectiveScan(nn.Module):
    """Its result is a partial sum over the attention-TP group, and so is what makes steps, keys and queries:
    all ranks add that up, as each channel is told by all others what it takes."""

    start: torch.Tensor

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, SelectiveScanConfig)
        self.config, self.layer_id, self.name, self.comm = config, layer_id, name, build.comm
        self.own = own = shard(config.channels, ranks, rank, "the number of Mamba channels")
        count, hidden = length(own), slice(0, build.model.hidden_size)
        gates = slice(config.channels + own.start, config.channels + own.stop)
        parts = [Part(f"{name}.in_proj", rows) for rows in (own, gates)]
        self.projection = build.linear(parts, hidden, bias=config.bias, rows_over=ranks)
        self.conv = Convolution(build, f"{name}.conv1d", [own], config.conv_kernel, config.conv_bias)
        narrow = [Part(f"{name}.x_proj", slice(0, config.narrow))]
        self.narrow = build.linear(narrow, own, columns_over=ranks)
        steps = slice(0, config.step_rank)
        self.steps = build.linear([Part(f"{name}.dt_proj", own)], steps, bias=True, rows_over=ranks)
        rate = torch.empty(count, config.state_size, dtype=torch.float32, device=build.device)
        self.rate = nn.Parameter(rate, requires_grad=False)
        self.skip = head_vector(count, build.dtype, build)
        start = torch.zeros(count, 1, dtype=build.dtype, device=build.device)
        self.register_buffer("start", start, persistent=False)  # of steps that have their bias
        self.out = out_of_channels(build, f"{name}.out_proj", own, config.bias)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        mixed, gate = self.projection(x).chunk(2, dim=-1)
        decays = -torch.exp(self.rate)  # SGLang's kernels are given these, and ours the rates
        kept = state.conv.dtype  # what SGLang's kernel is given, whatever rows are
        values = self.conv(mixed.to(kept), state.conv, rows).to(x.dtype)
        narrow = self.comm.all_reduce(self.narrow(values), "attn_tp")
        sizes = [config.step_rank, config.state_size, config.state_size]
        step, keys, queries = map(self._normed, narrow.split(sizes, dim=-1))
        inputs = RecurrentInputs(
            queries.unsqueeze(1),
            keys.unsqueeze(1),
            values.unsqueeze(-1),
            self.steps(step),
            None,
            self.rate,
            self.start,
            self.skip,
            gate=gate.unsqueeze(-1),
        )
        answer = recur(inputs, state.recurrent, rows).flatten(1)
        del inputs, values, step, keys, queries, narrow, decays
        return self.out(answer)

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        if self.config.norm_eps is None:
            return x
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.norm_eps)).to(x.dtype)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.conv, self.narrow, self.steps, self.out):
            yield from part.pieces()
        for vector, stem in ((self.rate, "A_log"), (self.skip, "D")):
            yield Piece(vector, (Source(f"{self.name}.{stem}", (self.own,)),))
