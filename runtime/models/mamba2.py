"""A Mamba-2 mixer in place of attention, its heads and groups split over the attention-TP group."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import GatedNorm, RecurrentInputs, Rows, recur
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution, head_vector, out_of_channels, workspaces
from runtime.server.recurrent import Mamba2Config


class Mamba2Mixer(nn.Module):
    """Its result is a partial sum over the attention-TP group. A single group is on every rank, and all ranks
    add up its squares before the norm."""

    scales: torch.Tensor | None

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, Mamba2Config)
        config.state_shape(ranks)
        self.config, self.layer_id, self.name, self.comm = config, layer_id, name, build.comm
        self.heads = shard(config.num_heads, ranks, rank, "the number of Mamba heads")
        inner = slice(self.heads.start * config.head_dim, self.heads.stop * config.head_dim)
        first = 0 if config.num_groups == 1 else rank * config.groups_per_rank(ranks)
        count = config.groups_per_rank(ranks) * config.state_size
        groups = slice(first * config.state_size, first * config.state_size + count)
        total, widths = config.inner_size, config.num_groups * config.state_size
        blocks = [inner, _moved(groups, total), _moved(groups, total + widths)]
        rows = [inner, *(_moved(block, total) for block in blocks)]
        rows.append(_moved(self.heads, 2 * total + 2 * widths))
        self.sizes = [length(inner), length(inner) + 2 * count, length(self.heads)]
        self.widths = [length(inner), count, count]
        hidden = slice(0, build.model.hidden_size)
        parts = [Part(f"{name}.in_proj", own) for own in rows]
        self.projection = build.linear(parts, hidden, bias=config.bias, rows_over=ranks)
        self.conv = Convolution(build, f"{name}.conv1d", blocks, config.conv_kernel, config.conv_bias)
        self.rate = head_vector(length(self.heads), torch.float32, build)
        self.bias, self.skip = (head_vector(length(self.heads), build.dtype, build) for _ in range(2))
        self.norm: GatedNorm | None = None
        if config.is_normed:
            self.norm = GatedNorm(
                f"{name}.norm",
                length(inner),
                total // config.num_groups,
                build.model.rms_eps,
                build.dtype,
                build.device,
                gate_first=True,
                rows=inner,
            )
        scales = _scales(config.scales, [length(inner), *self.widths, length(self.heads)], build)
        self.register_buffer("scales", scales, persistent=False)
        self.out = out_of_channels(build, f"{name}.out_proj", inner, config.bias)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        projected = self.projection(x)
        if self.scales is not None:
            projected = projected * self.scales
        gate, mixed, step = projected.split(self.sizes, dim=-1)
        values, keys, queries = self.conv(mixed, state.conv, rows).split(self.widths, dim=-1)
        inputs = RecurrentInputs(
            queries.unflatten(-1, (-1, config.state_size)),
            keys.unflatten(-1, (-1, config.state_size)),
            values.unflatten(-1, (-1, config.head_dim)),
            step,
            None,
            self.rate,
            self.bias,
            self.skip,
            config.least_step,
        )
        held = workspaces(config, inputs, batch)
        answer = recur(inputs, state.recurrent, rows).flatten(1)
        del projected, values, keys, queries, inputs, held
        return self.out(self._normed(answer, gate))

    def _normed(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return x * F.silu(gate.float()).to(x.dtype)
        ranks = self.comm.size("attn_tp")
        if ranks == 1 or self.config.num_groups > 1:
            return self.norm(x, gate)
        opened = x * F.silu(gate.float())
        squares = opened.square().sum(-1, keepdim=True)
        self.comm.all_reduce(squares, "attn_tp")
        scaled = opened * torch.rsqrt(squares / self.config.inner_size + self.norm.eps)
        return self.norm.weight * scaled.to(x.dtype)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.conv, self.norm, self.out):
            if part is not None:
                yield from part.pieces()
        for vector, stem in ((self.rate, "A_log"), (self.bias, "dt_bias"), (self.skip, "D")):
            yield Piece(vector, (Source(f"{self.name}.{stem}", (self.heads,)),))


def _scales(scales: tuple[float, ...], sizes: list[int], build: Build) -> torch.Tensor | None:
    if not scales:
        return None
    every = torch.empty(1, sum(sizes), dtype=build.dtype, device=build.device)
    for scale, part in zip(scales, every.split(sizes, dim=-1), strict=True):
        part.fill_(scale)
    return every


def _moved(rows: slice, by: int) -> slice:
    return slice(rows.start + by, rows.stop + by)
