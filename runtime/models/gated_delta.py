"""A gated delta net in place of attention, its heads split over the attention-TP group."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import GatedNorm, RecurrentInputs, Rows, recur
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution, head_vector, workspaces
from runtime.server.recurrent import GatedDeltaConfig


class GatedDeltaNet(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, GatedDeltaConfig)
        config.state_shape(ranks)
        self.config, self.layer_id, self.name = config, layer_id, name
        self.key_heads = shard(config.num_key_heads, ranks, rank, "the number of linear key heads")
        self.heads = shard(config.num_value_heads, ranks, rank, "the number of linear value heads")
        keys = _rows(self.key_heads, config.key_head_dim)
        values = _rows(self.heads, config.value_head_dim)
        self.sizes = [length(keys), length(keys), length(values)]
        self.projection, self.gates = self._projections(build, keys, values)
        blocks = [
            keys,
            slice(config.key_dim + keys.start, config.key_dim + keys.stop),
            slice(2 * config.key_dim + values.start, 2 * config.key_dim + values.stop),
        ]
        self.conv = Convolution(build, f"{name}.conv1d", blocks, config.conv_kernel)
        self.rate = head_vector(length(self.heads), torch.float32, build)
        self.bias = head_vector(length(self.heads), build.dtype, build)
        width = config.value_head_dim
        self.norm = GatedNorm(
            f"{name}.norm",
            width,
            width,
            build.model.rms_eps,
            build.dtype,
            build.device,
            gate_first=False,
            plain_gate=config.plain_gate,
            scale=config.norm_scale,
            centred=config.centred_norm,
        )
        self.out = build.linear([Part(f"{name}.out_proj", slice(0, build.model.hidden_size))], values)

    def _projections(self, build: Build, keys: slice, values: slice) -> tuple[Linear, Linear]:
        """What the convolution takes and the norm's gate; and a head's strength and step."""
        config, name, hidden = self.config, self.name, slice(0, build.model.hidden_size)
        kept: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if config.projections == "heads":
            kept = (*self.sizes, self.sizes[2]), (length(self.heads),) * 2
            wide = 2 * (config.key_dim + config.value_dim) // config.num_key_heads
            narrow = 2 * config.num_value_heads // config.num_key_heads
            all_of = [Part(f"{name}.in_proj_qkvz", _rows(self.key_heads, wide))]
            gates = [Part(f"{name}.in_proj_ba", _rows(self.key_heads, narrow))]
        else:
            key_dim = config.key_dim
            starts = ((0, keys), (key_dim, keys), (2 * key_dim, values))
            all_of = [
                *(Part(f"{name}.in_proj_qkv", slice(at + own.start, at + own.stop)) for at, own in starts),
                Part(f"{name}.in_proj_z", values),
            ]
            gates = [Part(f"{name}.in_proj_{one}", self.heads) for one in ("b", "a")]
        mixed = build.linear(all_of, hidden, kept_as=kept[0])
        return mixed, build.linear(gates, hidden, kept_as=kept[1])

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        state, rows, config = pool.states.layer(self.layer_id), Rows.of(batch), self.config
        mixed, gate, strength, step = self._split(self.projection(x), self.gates(x))
        mixed = self.conv(mixed, state.conv, rows)
        q, k, v = mixed.split(self.sizes, dim=-1)
        inputs = RecurrentInputs(
            q.unflatten(-1, (-1, config.key_head_dim)),
            k.unflatten(-1, (-1, config.key_head_dim)),
            v.unflatten(-1, (-1, config.value_head_dim)),
            step,
            strength,
            self.rate,
            self.bias,
        )
        held = workspaces(config, inputs, batch)
        answer = recur(inputs, state.recurrent, rows)
        del mixed, q, k, v, inputs, held
        normed = self.norm(answer.flatten(0, 1), gate.flatten(0, 1))
        return self.out(normed.view(x.shape[0], -1))

    def _split(
        self, projected: torch.Tensor, gates: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values side by side; the norm's gate [T, heads, V]; strengths and steps."""
        config, heads = self.config, length(self.heads)
        if config.projections == "matrices":
            mixed, gate = projected.split([sum(self.sizes), self.sizes[2]], dim=-1)
            strength, step = (part.contiguous() for part in gates.chunk(2, dim=-1))
        else:
            ratio = config.num_value_heads // config.num_key_heads
            widths = [config.key_head_dim] * 2 + [ratio * config.value_head_dim] * 2
            *parts, gate = projected.unflatten(-1, (length(self.key_heads), -1)).split(widths, dim=-1)
            mixed = torch.cat([part.flatten(1) for part in parts], dim=-1)
            pairs = gates.unflatten(-1, (length(self.key_heads), -1)).split(ratio, dim=-1)
            strength, step = (part.reshape(-1, heads).contiguous() for part in pairs)
        shaped = gate.reshape(-1, heads, config.value_head_dim).contiguous()
        return mixed.contiguous(), shaped, strength, step

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.gates, self.conv, self.norm, self.out):
            yield from part.pieces()
        yield Piece(self.rate, (Source(f"{self.name}.A_log", (self.heads,)),))
        yield Piece(self.bias, (Source(f"{self.name}.dt_bias", (self.heads,)),))


def _rows(heads: slice, width: int) -> slice:
    return slice(heads.start * width, heads.stop * width)
