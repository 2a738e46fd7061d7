"""A gated delta net, used in place of attention, with its heads split over the attention-TP group."""

import torch
from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.decoder.convolution import Convolution
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import length, moved, rows_of_heads, shard
from runtime.layers.recurrence import GatedNorm, Rows, recur
from runtime.server.layer_config import GatedDeltaConfig


class GatedDeltaNet(nn.Module):
    """A gated delta net. Its output is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, GatedDeltaConfig)
        config.state_shape(ranks)
        self.config, self.layer_id, self.name = config, layer_id, name
        self.key_heads = shard(config.num_key_heads, ranks, rank, "the number of linear key heads")
        self.heads = shard(config.num_value_heads, ranks, rank, "the number of linear value heads")
        keys = rows_of_heads(self.key_heads, config.key_head_dim)
        values = rows_of_heads(self.heads, config.value_head_dim)
        self.sizes = [length(keys), length(keys), length(values)]
        self._make_projections(build)
        blocks = [keys, moved(keys, config.key_dim), moved(values, 2 * config.key_dim)]
        self.conv = Convolution(build, f"{name}.conv1d", blocks, config.conv_kernel)
        self.rate = build.vector(length(self.heads), torch.float32)
        self.bias = build.vector(length(self.heads))
        width, eps = config.value_head_dim, build.model.style.rms_eps
        self.norm = GatedNorm(f"{name}.norm", width, width, eps, build.dtype, build.device, gate_first=False)
        self.out = build.linear([Part(f"{name}.out_proj", slice(0, build.model.hidden_size))], values)

    def _make_projections(self, build: Build) -> None:
        """Make the input projections. A checkpoint groups their rows by key head: queries, keys, values and
        norm gates; strengths and steps. A server stores each kind by itself."""
        config, hidden = self.config, slice(0, build.model.hidden_size)
        wide = 2 * (config.key_dim + config.value_dim) // config.num_key_heads
        narrow = 2 * config.num_value_heads // config.num_key_heads
        all_of = [Part(f"{self.name}.in_proj_qkvz", rows_of_heads(self.key_heads, wide))]
        gates = [Part(f"{self.name}.in_proj_ba", rows_of_heads(self.key_heads, narrow))]
        self.projection = build.linear(all_of, hidden, kept_as=(*self.sizes, self.sizes[2]))
        self.gates = build.linear(gates, hidden, kept_as=(length(self.heads),) * 2)

    def forward(self, x: Tensor, batch: ForwardBatch, pool: KVPool, table: Tensor | None) -> Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        mixed, gate, strength, step = self._split(self.projection(x), self.gates(x))
        q, k, v = self.conv(mixed, state.conv, rows).split(self.sizes, dim=-1)
        q, k = (one.unflatten(-1, (-1, config.key_head_dim)) for one in (q, k))
        v, given = v.unflatten(-1, (-1, config.value_head_dim)), (step, strength, self.rate, self.bias)
        answer = recur(q, k, v, *given, None, 0.0, state.recurrent, rows)
        del mixed, q, k, v
        normed = self.norm(answer.flatten(0, 1), gate.flatten(0, 1))
        return self.out(normed.view(x.shape[0], -1))

    def _split(self, projected: Tensor, gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys and values as one, the norm's gate [T, heads, V], strengths, steps."""
        config, heads = self.config, length(self.heads)
        ratio = config.num_value_heads // config.num_key_heads
        widths = [config.key_head_dim] * 2 + [ratio * config.value_head_dim] * 2
        *parts, gate = projected.unflatten(-1, (length(self.key_heads), -1)).split(widths, dim=-1)
        mixed = torch.cat([part.flatten(1) for part in parts], dim=-1)
        pairs = gates.unflatten(-1, (length(self.key_heads), -1)).split(ratio, dim=-1)
        strength, step = (part.reshape(-1, heads).contiguous() for part in pairs)
        shaped = gate.reshape(-1, heads, config.value_head_dim).contiguous()
        return mixed.contiguous(), shaped, strength, step
