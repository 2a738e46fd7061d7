"""A Mamba-2 mixer, used in place of attention. Heads and groups are split over the attention-TP group."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.decoder.convolution import Convolution
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import length, moved, rows_of_heads, shard
from runtime.layers.recurrence import GatedNorm, Rows, recur
from runtime.server.layer_config import Mamba2Config


class Mamba2Mixer(nn.Module):
    """A Mamba-2 mixer. Its output is a partial sum over the attention-TP group. If there is a single group of
    heads, every rank holds it, and all ranks add up its squares before the norm."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, Mamba2Config)
        config.state_shape(ranks)
        self.config, self.layer_id, self.name, self.comm = config, layer_id, name, build.comm
        self.heads = shard(config.num_heads, ranks, rank, "the number of Mamba heads")
        inner = rows_of_heads(self.heads, config.head_dim)
        own = config.groups_per_rank(ranks)
        first = 0 if config.num_groups == 1 else rank * own
        groups = rows_of_heads(slice(first, first + own), config.state_size)
        total, widths = config.inner_size, config.num_groups * config.state_size
        blocks = [inner, moved(groups, total), moved(groups, total + widths)]
        rows = [inner, *(moved(block, total) for block in blocks), moved(self.heads, 2 * (total + widths))]
        self.widths = [length(block) for block in blocks]
        self.sizes = [length(inner), sum(self.widths), length(self.heads)]
        hidden, bias = slice(0, build.model.hidden_size), config.bias
        parts = [Part(f"{name}.in_proj", part) for part in rows]
        self.projection = build.linear(parts, hidden, bias=bias, rows_over=ranks)
        self.conv = Convolution(build, f"{name}.conv1d", blocks, config.conv_kernel, config.conv_bias)
        self.rate = build.vector(length(self.heads), torch.float32)
        self.bias, self.skip = build.vector(length(self.heads)), build.vector(length(self.heads))
        group, eps = total // config.num_groups, build.model.style.rms_eps
        how = build.dtype, build.device
        self.norm = GatedNorm(f"{name}.norm", length(inner), group, eps, *how, gate_first=True, rows=inner)
        back = [Part(f"{name}.out_proj", hidden)]
        self.out = build.linear(back, inner, bias=bias, adds_bias=rank == 0, columns_over=ranks)

    def forward(self, x: Tensor, batch: ForwardBatch, pool: KVPool, table: Tensor | None) -> Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        gate, mixed, step = self.projection(x).split(self.sizes, dim=-1)
        values, keys, queries = self.conv(mixed, state.conv, rows).split(self.widths, dim=-1)
        q, k = (one.unflatten(-1, (-1, config.state_size)) for one in (queries, keys))
        v, given = values.unflatten(-1, (-1, config.head_dim)), (step, None, self.rate, self.bias, self.skip)
        answer = recur(q, k, v, *given, config.least_step, state.recurrent, rows).flatten(1)
        del values, keys, queries, q, k, v
        return self.out(self._normed(answer, gate))

    def _normed(self, x: Tensor, gate: Tensor) -> Tensor:
        if self.comm.size("attn_tp") == 1 or self.config.num_groups > 1:
            return self.norm(x, gate)
        opened = x * F.silu(gate.float())
        squares = opened.square().sum(-1, keepdim=True)
        self.comm.all_reduce(squares, "attn_tp")
        scaled = opened * torch.rsqrt(squares / self.config.inner_size + self.norm.eps)
        return self.norm.weight * scaled.to(x.dtype)
