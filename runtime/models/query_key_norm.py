"""Norms of queries and keys before they are turned, and of answers: of each head, or of all heads of all
ranks as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from runtime.layers.loading import Piece, length
from runtime.layers.norm import MeanNorm, RMSNorm, rms_norm_
from runtime.models.build import Build
from runtime.server.layer_config import AttentionConfig


class HeadNorms(nn.Module):
    """In place, of the heads inside a fused projection."""

    def __init__(self, q_norm: RMSNorm | MeanNorm, k_norm: RMSNorm | MeanNorm) -> None:
        super().__init__()
        self.q_norm, self.k_norm = q_norm, k_norm

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        self.q_norm.in_place(q)
        self.k_norm.in_place(k)

    def pieces(self) -> Iterator[Piece]:
        yield from self.q_norm.pieces()
        yield from self.k_norm.pieces()


class QueryNorms(HeadNorms):
    """Of keys there is a norm that nobody asks."""

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        self.q_norm.in_place(q)

    def pieces(self) -> Iterator[Piece]:
        yield from self.q_norm.pieces()
        yield from (replace(piece, may_lack=True) for piece in self.k_norm.pieces())


class UnitNorms(nn.Module):
    """Of each head, without weights."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        for x in (q, k):
            x.copy_(x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps))

    def pieces(self) -> Iterator[Piece]:
        yield from ()


class BareNorms(nn.Module):
    """The same by a kernel of weighted norms, which is given ones, as SGLang's has_weight=False is."""

    ones: torch.Tensor

    def __init__(self, width: int, build: Build) -> None:
        super().__init__()
        self.eps = build.model.rms_eps
        self.register_buffer("ones", torch.ones(width, dtype=build.dtype, device=build.device))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        rms_norm_(q, self.ones, self.eps)
        rms_norm_(k, self.ones, self.eps)

    def pieces(self) -> Iterator[Piece]:
        yield from ()


class WholeNorms(HeadNorms):
    """Ranks add up their squares. A KV head that several hold counts as often in the sum as in the width."""

    def __init__(self, q_norm: RMSNorm, k_norm: RMSNorm, build: Build, *own: slice) -> None:
        """`own` are this rank's of the weights, where it holds those of all."""
        super().__init__(q_norm, k_norm)
        self.comm, self.own = build.comm, own or (slice(None), slice(None))
        self.both = q_norm, k_norm

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        squares = torch.stack((_squares(q), _squares(k)))
        self.comm.all_reduce(squares, "attn_tp")
        for x, norm, own, sums in zip((q, k), self.both, self.own, squares, strict=True):
            weight = norm.weight[own].view(x.shape[1:])
            width = weight.numel() * self.comm.size("attn_tp")
            x.mul_(torch.rsqrt(sums / width + norm.eps)[:, None, None]).mul_(weight)


class AnswerNorm(nn.Module):
    """... and of what all heads of all ranks answer."""

    def __init__(self, norm: RMSNorm, width: int, build: Build) -> None:
        super().__init__()
        self.comm, self.norm, self.width = build.comm, norm, width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32).square()
        self.comm.all_reduce(squares, "attn_tp")
        shrinks = torch.rsqrt(squares / self.width + self.norm.eps)[:, None]
        return (x * shrinks).to(x.dtype) * self.norm.weight

    def pieces(self) -> list[Piece]:
        return self.norm.pieces()


def query_key_norms(
    build: Build, name: str, config: AttentionConfig, q: slice, kv: slice, has_keys: bool = True
) -> HeadNorms | UnitNorms | BareNorms | None:
    """`q` and `kv` are this rank's rows; of a layer that `has_keys` of its own."""
    if config.qk_norm == "none":
        return None
    if config.qk_norm == "unit":
        return UnitNorms(build.model.rms_eps)
    if config.qk_norm == "bare":
        return BareNorms(config.head_dim, build)
    of_q, of_k = (f"{name}.{one}" for one in (build.model.names.q_norm, build.model.names.k_norm))
    if config.qk_norm == "head":
        norms = HeadNorms if has_keys else QueryNorms
        return norms(build.norm(of_q, config.head_dim), build.norm(of_k, config.head_dim))
    if config.qk_norm == "head by mean":
        sizes = config.head_dim, build.model.rms_eps, build.dtype, build.device
        return HeadNorms(MeanNorm(of_q, *sizes, biased=True), MeanNorm(of_k, *sizes, biased=True))
    if config.qk_norm == "all, held whole":
        whole_q = build.norm(of_q, config.num_heads * config.head_dim)
        return WholeNorms(whole_q, build.norm(of_k, config.num_kv_heads * config.head_dim), build, q, kv)
    q_norm = build.norm(of_q, length(q), rows=q)
    return WholeNorms(q_norm, build.norm(of_k, length(kv), rows=kv), build)


def _squares(x: torch.Tensor) -> torch.Tensor:
    """[T, heads, width] -> [T], in fp32."""
    return torch.linalg.vector_norm(x, dim=(1, 2), dtype=torch.float32).square()
