"""Kimi's delta attention: each channel of a key forgets by itself. Heads lie on attention's ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.quantization import PLAIN, Plain
from runtime.layers.recurrence import GatedNorm, RecurrentInputs, Rows, recur
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution, head_vector, workspaces
from runtime.server.recurrent import KimiDeltaConfig

_FUSED_DECODE = (12, 128, 4)  # heads of a rank, their width, what a convolution sees


class KimiDelta(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, KimiDeltaConfig)
        config.state_shape(ranks)
        self.config, self.layer_id, self.name = config, layer_id, name
        self.heads = shard(config.num_heads, ranks, rank, "the number of linear heads")
        width, hidden = config.head_dim, slice(0, build.model.hidden_size)
        self.inner = inner = slice(self.heads.start * width, self.heads.stop * width)
        self.gates, self.hidden = f"{name}.forget_gate", build.model.hidden_size
        within, step = (slice(0, width), "_a") if config.narrow_gates else (inner, "")
        strength = Part(f"{name}.b_proj", self.heads)
        opens = Part(f"{name}.g{step}_proj", within)
        parts = [
            *(Part(f"{name}.{one}_proj", inner) for one in "qkv"),
            self._forgets(f"f{step}_proj", within),
            Part(f"{name}.g_proj", inner) if config.whole_gate else opens,
        ]
        # srt/models/kimi_linear.py: beside wide gates it is never quantized where it is not one of these
        self.strength: Linear | None = None
        self.narrow = nn.ModuleList()
        self.sizes = [3 * length(inner), length(within), length(within)]
        if config.whole_gate:  # srt/models/kimi_k3.py
            self.strength = build.linear([strength], hidden, rows_over=ranks)
            self.narrow.append(build.linear([parts.pop(3)], hidden))
            self.sizes = [3 * length(inner), length(inner)]
        elif config.narrow_gates and build.is_quantized:
            self.strength = build.linear([strength], hidden, rows_over=ranks)
            self.narrow.extend(build.linear([part], hidden) for part in parts[3:])
            del parts[3:], self.sizes[1:]
        elif isinstance(build.scheme_of(parts), Plain):
            parts.insert(3, strength)
            self.sizes.insert(1, length(self.heads))
        else:
            self.strength = build.linear([strength], hidden, scheme=PLAIN, rows_over=ranks)
        self.projection = build.linear(parts, hidden, rows_over=ranks)
        self.forget: Linear | None = None
        self.gate: Linear | None = None
        if config.narrow_gates:
            self.forget = build.linear([self._forgets("f_b_proj", inner)], within, rows_over=ranks)
        if config.narrow_gates and not config.whole_gate:
            self.gate = build.linear([Part(f"{name}.g_b_proj", inner)], within, rows_over=ranks)
        thirds = [config.inner_size * third for third in range(3)]
        blocks = [slice(at + inner.start, at + inner.stop) for at in thirds]
        apart = [(f"{name}.{one}_conv1d", inner) for one in "qkv"]
        self.conv = Convolution(
            build, f"{name}.conv1d", blocks, config.conv_kernel, apart=apart, dtype=torch.float32
        )
        self.rate = head_vector(length(self.heads), torch.float32, build)
        self.bias = head_vector(length(inner), torch.float32, build)
        self.norm = GatedNorm(
            f"{name}.o_norm",
            width,
            width,
            config.norm_eps or build.model.rms_eps,
            build.dtype,
            build.device,
            gate_first=False,
            plain_gate=True,
        )
        out = build.model.names.attention_out
        answer = Part(f"{name}.{out}", hidden, within=(f"{name}.o_proj", hidden))
        self.out = build.linear([answer], inner, columns_over=ranks)

    def _forgets(self, one: str, rows: slice) -> Part:
        return Part(f"{self.name}.{one}", rows, within=(f"{self.gates}.{one}", rows))

    def finalize(self) -> None:
        """What SGLang's class of K3 makes after loading: rows that pad one matrix of strengths and what
        forgets, and copies for its kernel of a decode, which is of these sizes alone."""
        if not self.config.whole_gate or self.strength is None:
            return
        rows = -(self.config.head_dim + length(self.heads)) % 8
        padding = self.rate.new_zeros(rows, self.hidden, dtype=self.projection.dtype)
        self.register_buffer("padding", padding, persistent=False)
        taps = self.conv.weight
        if (length(self.heads), self.config.head_dim, taps.shape[1]) != _FUSED_DECODE:
            return
        self.register_buffer("taps", taps.t().contiguous(), persistent=False)
        self.register_buffer("no_bias", taps.new_zeros(taps.shape[0]), persistent=False)
        self.register_buffer("norm_in_fp32", self.norm.weight.float(), persistent=False)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        state, rows, width = pool.states.layer(self.layer_id), Rows.of(batch), self.config.head_dim
        projected = *self.projection(x).split(self.sizes, dim=-1), *(one(x) for one in self.narrow)
        mixed, *strengths, forget, gate = projected
        if self.config.whole_gate:
            forget, gate = gate, forget
        strength = strengths[0] if self.strength is None else self.strength(x)
        forget = forget if self.forget is None else self.forget(forget)
        gate = gate if self.gate is None else self.gate(gate)
        step, opening = (part.unflatten(-1, (-1, width)) for part in (forget, gate))
        mixed = self.conv(mixed, state.conv, rows)
        q, k, v = (part.unflatten(-1, (-1, width)) for part in mixed.chunk(3, dim=-1))
        bound = self.config.lower_bound
        inputs = RecurrentInputs(q, k, v, step, strength, self.rate, self.bias, lower_bound=bound)
        held = workspaces(self.config, inputs, batch)
        answer = recur(inputs, state.recurrent, rows)
        del projected, mixed, q, k, v, inputs, held
        normed = self.norm(answer.flatten(0, 1), opening.flatten(0, 1))
        return self.out(normed.view(x.shape[0], -1))

    def pieces(self) -> Iterator[Piece]:
        linears = self.projection, self.strength, *self.narrow, self.forget, self.gate, self.out
        for part in (*linears, self.conv, self.norm):
            if part is not None:
                yield from part.pieces()
        one, places, count = slice(0, 1), (self.name, self.gates), (self.config.num_heads,)
        rates = (one, one, self.heads, one)
        flat = (Source(f"{at}.A_log", (self.heads,), shape=count) for at in places)
        yield Piece(self.rate, (*flat, *(Source(f"{at}.A_log", rates, torch.flatten) for at in places)))
        yield Piece(self.bias, tuple(Source(f"{at}.dt_bias", (self.inner,)) for at in places))
