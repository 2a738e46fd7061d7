"""Attention through the pool on any device, and the same written out naively in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import GqaPool, KVPool, LatentPool, PoolShape, SlidingSlots
from runtime.layers.attention import AttentionLayer, attend, attend_latent
from runtime.server.layer_config import IndexerConfig, MLAConfig
from tests.runtime.batches import make_extend_batch

CONTEXT, REQUESTS = 256, 8
SLOTS = CONTEXT * REQUESTS
LAYER = 3


@dataclass(frozen=True)
class Lengths:
    """Of each request: tokens already in the pool, and new ones."""

    prefixes: tuple[int, ...]
    new: tuple[int, ...]


LENGTHS = {
    "prefill": Lengths((0,), (70,)),
    "ragged prefill": Lengths((0, 0, 0), (1, 33, 9)),
    "behind prefixes": Lengths((5, 0, 90, 17), (40, 3, 1, 64)),
    "decode": Lengths((1, 30, 0, 127, 64), (1, 1, 1, 1, 1)),
    "verify": Lengths((12, 100, 3), (4, 4, 4)),
}


@dataclass(frozen=True)
class Grouped:
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    sinks: bool = False
    slots_apart: bool = False  # in a smaller pool of sliding layers


@dataclass(frozen=True)
class Latent:
    heads: int
    latent: int
    rotary: int
    indexer: IndexerConfig | None = None

    @property
    def mla(self) -> MLAConfig:
        return MLAConfig(None, self.latent, 16, self.rotary, 16, self.indexer)


@dataclass(frozen=True)
class Tokens:
    """Every token of every request, as a model computed them: q, k [length, heads, size]; all in `dtype`."""

    lengths: Lengths
    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]

    def prefixes(self, of: list[Tensor]) -> Tensor:
        return torch.cat([rows[:prefix] for rows, prefix in zip(of, self.lengths.prefixes, strict=True)])

    def new(self, of: list[Tensor]) -> Tensor:
        return torch.cat([rows[prefix:] for rows, prefix in zip(of, self.lengths.prefixes, strict=True)])


def make_tokens(
    lengths: Lengths,
    q: tuple[int, int],
    k: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    v: tuple[int, int] | None = None,
) -> Tokens:
    totals = [prefix + new for prefix, new in zip(lengths.prefixes, lengths.new, strict=True)]

    def rows(shape: tuple[int, int]) -> list[Tensor]:
        return [torch.randn(total, *shape).to(device, dtype) for total in totals]

    return Tokens(lengths, rows(q), rows(k), rows(v or k))


def make_pool(kind: Grouped | Latent, dtype: torch.dtype, device: torch.device) -> KVPool:
    shape = PoolShape(SLOTS, 1, (LAYER,), dtype, device)
    cache: GqaPool | LatentPool
    if isinstance(kind, Latent):
        cache = LatentPool(shape, kind.mla)
    else:
        heads = {LAYER: (kind.kv_heads, kind.head_dim)}
        cache = GqaPool(shape, heads, SlidingSlots(SLOTS, [LAYER], shape) if kind.slots_apart else None)
    table = torch.zeros(REQUESTS + 1, CONTEXT, dtype=torch.int32, device=device)
    return KVPool(table, torch.arange(1, SLOTS + 1, device=device), cache)


def make_batches(lengths: Lengths, pool: KVPool) -> tuple[ForwardBatch, ForwardBatch]:
    """One that brings the prefixes, and the one in question."""
    requests = range(1, len(lengths.new) + 1)
    before = make_extend_batch([[0] * prefix for prefix in lengths.prefixes], requests, pool)
    new = make_extend_batch([[0] * new for new in lengths.new], requests, pool, lengths.prefixes)
    return before, new


def run_grouped(
    kind: Grouped,
    lengths: Lengths,
    dtype: torch.dtype,
    device: torch.device,
    kv_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """What the pool's attention says of the new tokens, and what is right."""
    pool = make_pool(kind, kv_dtype or dtype, device)
    keys, values = (kind.kv_heads, kind.head_dim), (kind.kv_heads, kind.head_dim)
    tokens = make_tokens(lengths, (kind.heads, kind.head_dim), keys, dtype, device, values)
    sinks = torch.randn(kind.heads, device=device).to(dtype) if kind.sinks else None
    layer = AttentionLayer(LAYER, kind.head_dim**-0.5, kind.window, sinks)
    for batch, part in zip(make_batches(lengths, pool), (tokens.prefixes, tokens.new), strict=True):
        result = attend(part(tokens.q), part(tokens.k), part(tokens.v), layer, batch, pool)
    stored = [[rows.to(kv_dtype or dtype) for rows in of] for of in (tokens.k, tokens.v)]
    expected = [
        naive(q, k, v, _visible(len(q), kind.window), layer.scale, sinks)
        for q, k, v in zip(tokens.q, *stored, strict=True)
    ]
    return result, tokens.new(expected)


def run_latent(
    kind: Latent,
    lengths: Lengths,
    dtype: torch.dtype,
    device: torch.device,
    kv_dtype: torch.dtype | None = None,
    keep: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Likewise for latents; `keep` lets each token see that many random earlier positions."""
    pool = make_pool(kind, kv_dtype or dtype, device)
    assert isinstance(pool.cache, LatentPool)
    width = kind.latent + kind.rotary
    tokens = make_tokens(lengths, (kind.heads, width), (1, width), dtype, device)
    layer = AttentionLayer(LAYER, width**-0.5)
    visible = [_visible(len(q), None) for q in tokens.q]
    chosen = None
    if keep is not None:
        visible = [_thinned(seen, keep) for seen in visible]
        chosen = [_positions(seen, keep).to(device) for seen in visible]
    for batch, part in zip(make_batches(lengths, pool), (tokens.prefixes, tokens.new), strict=True):
        selected = part(chosen) if chosen else None
        q, k = part(tokens.q), part(tokens.k).squeeze(1)
        result = attend_latent(q, k, kind.latent, layer, batch, pool, selected)
    row = pool.cache.latent_row
    stored = [row.unpack(row.pack(k)) if row else k.to(kv_dtype or dtype) for k in tokens.k]
    expected = [
        naive(q, k, k[..., : kind.latent], seen, layer.scale)
        for q, k, seen in zip(tokens.q, stored, visible, strict=True)
    ]
    return result, tokens.new(expected)


def naive(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """One request, one head after the other; `sinks` are [heads]."""
    q, k, v, visible = q.double().cpu(), k.double().cpu(), v.double().cpu(), visible.cpu()
    heads = []
    for head in range(q.shape[1]):
        kv_head = head // (q.shape[1] // k.shape[1])
        scores = q[:, head] @ k[:, kv_head].T * scale
        weights = torch.where(visible, scores.exp(), 0.0)
        sink = 0 if sinks is None else sinks[head].double().cpu().exp()
        heads.append(weights / (weights.sum(1, keepdim=True) + sink) @ v[:, kv_head])
    return torch.stack(heads, 1)


def relative_error(result: Tensor, expected: Tensor) -> float:
    return ((result.double().cpu() - expected).norm() / expected.norm()).item()


def _visible(length: int, window: int | None) -> Tensor:
    ahead = torch.arange(length)[:, None] - torch.arange(length)
    return (ahead >= 0) & (ahead < (window or length))


def _thinned(visible: Tensor, keep: int) -> Tensor:
    best = torch.where(visible, torch.rand(visible.shape), -1.0).topk(min(keep, len(visible)), dim=1).indices
    return visible & torch.zeros_like(visible).scatter(1, best, True)


def _positions(visible: Tensor, keep: int) -> Tensor:
    """[t, keep] int32: where each row is true, then -1."""
    positions = torch.full((len(visible), keep), -1, dtype=torch.int32)
    for row, seen in zip(positions, visible, strict=True):
        where = seen.nonzero().flatten().flip(0)
        row[: len(where)] = where.int()
    return positions
