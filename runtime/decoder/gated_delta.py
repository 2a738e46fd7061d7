"""A gated delta net, used in place of attention, with its heads split over the attention-TP group."""

from __future__ import annotations

import torch
from torch import nn

from runtime.decoder.build import Build
from runtime.decoder.convolution import Convolution
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.recurrence import GatedNorm, Rows, recur
from runtime.server.layer_config import GatedDeltaConfig, share


class GatedDeltaNet(nn.Module):
    """A gated delta net. Its output is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, hidden = build.model.recurrent, build.comm.size("attn_tp"), build.model.hidden_size
        assert isinstance(config, GatedDeltaConfig)
        self.config, self.layer_id = config, layer_id
        self.key_heads = share(config.num_key_heads, ranks, "the number of linear key heads")
        self.heads = share(config.num_value_heads, ranks, "the number of linear value heads")
        keys, values = self.key_heads * config.key_head_dim, self.heads * config.value_head_dim
        self.sizes = [keys, keys, values]
        # A checkpoint groups the rows of both projections by key head: queries, keys, values and norm gates;
        # strengths and steps. A server stores each kind by itself.
        all_of = [Part(f"{name}.in_proj_qkvz", 2 * (keys + values))]
        self.projection = build.linear(all_of, hidden, kept_as=(*self.sizes, values))
        gates = [Part(f"{name}.in_proj_ba", 2 * self.heads)]
        self.gates = build.linear(gates, hidden, kept_as=(self.heads,) * 2)
        self.conv = Convolution(build, sum(self.sizes), config.conv_kernel)
        self.rate, self.bias = build.vector(self.heads, torch.float32), build.vector(self.heads)
        width = config.value_head_dim
        self.norm = GatedNorm(width, width, build.dtype, build.device, gate_first=False)
        self.out = build.linear([Part(f"{name}.out_proj", hidden)], values)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
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

    def _split(
        self, projected: torch.Tensor, gates: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values as one, the norm's gate [T, heads, V], strengths, steps."""
        config, heads = self.config, self.heads
        ratio = config.num_value_heads // config.num_key_heads
        widths = [config.key_head_dim] * 2 + [ratio * config.value_head_dim] * 2
        *parts, gate = projected.unflatten(-1, (self.key_heads, -1)).split(widths, dim=-1)
        mixed = torch.cat([part.flatten(1) for part in parts], dim=-1)
        pairs = gates.unflatten(-1, (self.key_heads, -1)).split(ratio, dim=-1)
        strength, step = (part.reshape(-1, heads).contiguous() for part in pairs)
        shaped = gate.reshape(-1, heads, config.value_head_dim).contiguous()
        return mixed.contiguous(), shaped, strength, step
