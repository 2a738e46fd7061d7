"""Lightning attention: linear attention whose state forgets alike at every token. Heads lie on attention's
ranks; queries, keys and values are in fp32 from their projection to the answer's norm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, shard
from runtime.layers.recurrence import GatedNorm, RecurrentInputs, Rows, recur
from runtime.layers.rope import rope_
from runtime.models.build import Build
from runtime.models.query_key_norm import AnswerNorm, HeadNorms
from runtime.models.recurrent_parts import workspaces
from runtime.server.recurrent import LightningConfig

_ONE = math.log(math.e - 1)  # whose softplus is 1: a value counts as it is


class LightningAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, LightningConfig)
        config.state_shape(ranks)
        self.config, self.layer_id, names = config, layer_id, build.model.names
        heads = shard(config.num_heads, ranks, rank, "the number of linear heads")
        width, hidden = config.head_dim, slice(0, build.model.hidden_size)
        inner = slice(heads.start * width, heads.stop * width)
        self.qkv = build.linear(_asking(build, config, name, inner), hidden, rows_over=ranks)
        self.gate: Linear | None = None
        if config.gated:
            self.gate = build.linear([Part(f"{name}.{names.state_gate}", inner)], hidden, rows_over=ranks)
        self.out = build.linear([Part(f"{name}.{names.attention_out}", hidden)], inner, columns_over=ranks)
        self.norms: HeadNorms | None = None
        if config.normed_heads:
            of_q, of_k = (build.norm(f"{name}.{one}", width) for one in (names.q_norm, names.k_norm))
            self.norms = HeadNorms(of_q, of_k)
        self.norm = _norm_of(build, config, f"{name}.{names.state_norm}", inner)
        slopes = torch.tensor(config.slopes(layer_id)[heads], dtype=torch.float32, device=build.device)
        self.register_buffer("rate", slopes.log_(), persistent=False)
        self.register_buffer("bias", torch.full_like(slopes, _ONE), persistent=False)
        self.register_buffer("step", torch.zeros_like(slopes), persistent=False)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        mixed = self.qkv(x).float().unflatten(-1, (3, -1, self.config.head_dim))
        q, k, v = mixed.unbind(1)
        if self.norms is not None:
            self.norms(q, k)
        if table is not None:
            rope_(q, k, table, batch.positions, False)
        q.mul_(self.config.head_dim**-0.5)
        rate, bias, step = (self.get_buffer(one) for one in ("rate", "bias", "step"))
        inputs = RecurrentInputs(q, k, v, step.expand(len(x), -1), None, rate, bias)
        held = workspaces(self.config, inputs, batch)
        answer = recur(inputs, pool.states.layer(self.layer_id).recurrent, Rows.of(batch)).to(x.dtype)
        del mixed, q, k, v, inputs, held
        return self.out(self._opened(answer.flatten(1), x))

    def _opened(self, answer: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.norm, GatedNorm):
            assert self.gate is not None
            return self.norm(answer, self.gate(x))
        answer = answer if self.norm is None else self.norm(answer)
        return answer if self.gate is None else answer * self.gate(x).sigmoid()

    def pieces(self) -> Iterator[Piece]:
        for part in (self.qkv, self.gate, self.out, self.norms, self.norm):
            if part is not None:
                yield from part.pieces()


def _asking(build: Build, config: LightningConfig, name: str, inner: slice) -> list[Part]:
    """Of one matrix of a checkpoint, or of three."""
    packed = build.model.names.packed_qkv
    if packed is None:
        return [Part(f"{name}.{one}_proj", inner) for one in "qkv"]
    starts = [config.inner_size * third + inner.start for third in range(3)]
    return [Part(f"{name}.{packed}", slice(start, start + inner.stop - inner.start)) for start in starts]


def _norm_of(build: Build, config: LightningConfig, name: str, inner: slice) -> GatedNorm | AnswerNorm | None:
    size = inner.stop - inner.start
    if config.normed == "not":
        return None
    if config.normed == "as one":
        return AnswerNorm(build.norm(name, size, rows=inner), config.inner_size, build)
    return GatedNorm(
        name,
        size,
        config.inner_size // config.norm_groups,
        build.model.rms_eps,
        build.dtype,
        build.device,
        gate_first=False,
        plain_gate=True,
        rows=inner,
    )
