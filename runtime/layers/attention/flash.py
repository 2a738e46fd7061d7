"""Launches of the flash kernel: which columns of the pool it reads, and in what tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from runtime.forward.kv_packing import PackedRow
from runtime.layers.attention.flash_kernel import LOG2E, paged_flash
from runtime.layers.attention.reference import Paging


@dataclass(frozen=True, slots=True)
class Columns:
    """[slots, kv heads, ...] views of one layer's pool; `scales` count only with a quantization block."""

    keys: torch.Tensor
    values: torch.Tensor
    rotary: torch.Tensor
    scales: torch.Tensor
    quant_block: int = 0


@dataclass(frozen=True, slots=True)
class Tiles:
    rows: int
    keys: int
    warps: int


def grouped(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    paging: Paging,
    scale: float,
    window: int,
    sinks: torch.Tensor | None,
    cap: float = 0.0,
    chunk: int = 0,
    chosen: torch.Tensor | None = None,
    block: int = 1,
    growth: int = 0,
    by_distance: torch.Tensor | None = None,
    both_ways: bool = False,
) -> torch.Tensor:
    """Keys wider than values are read in two runs; `chosen` [T, kv heads, K] are of `block` tokens each."""
    width = values.shape[-1]
    out = _output(q, paging, width)
    rest = keys[..., width:] if keys.shape[-1] > width else keys
    columns = Columns(keys[..., :width], values, rest, keys)
    own = sinks, chosen, cap, chunk, block, growth, by_distance, both_ways
    _launch(q, columns, out, paging, scale, window, *own)
    return out


def latent(
    q: torch.Tensor,
    latents: torch.Tensor,
    paging: Paging,
    value_dim: int,
    scale: float,
    selected: torch.Tensor | None,
    sinks: torch.Tensor | None = None,
    window: int = 0,
) -> torch.Tensor:
    out = _output(q, paging, value_dim)
    if latents.dtype is torch.uint8:
        row = PackedRow(value_dim, q.shape[-1] - value_dim)
        main, scales, rotary = row.views(latents)
        columns = Columns(main, main, rotary, scales, row.block)
    else:
        main = latents[..., :value_dim]
        columns = Columns(main, main, latents[..., value_dim:], latents)
    _launch(q, columns, out, paging, scale, window, sinks, selected)
    return out


def _output(q: torch.Tensor, paging: Paging, dim: int) -> torch.Tensor:
    """Zeroed where a ragged batch may hold rows that belong to no request."""
    shape = (*q.shape[:2], dim)
    every_row_has_a_request = q.shape[0] == paging.requests.shape[0] * paging.max_query_len
    return q.new_empty(shape) if every_row_has_a_request else q.new_zeros(shape)


def tiles(rows: int, q: torch.Tensor, latent: bool) -> Tiles:
    """Sized for the 227 KiB of shared memory of an H200's multiprocessor."""
    needed = max(16, 1 << (rows - 1).bit_length())
    if q.dtype is torch.float32:
        return Tiles(16, 16, 4)
    if latent:
        return Tiles(min(64, needed), 32, 8)
    return Tiles(min(128, needed), 64, 8 if needed >= 128 else 4)


def _launch(
    q: torch.Tensor,
    columns: Columns,
    out: torch.Tensor,
    paging: Paging,
    scale: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
    selected: torch.Tensor | None = None,
    cap: float = 0.0,
    chunk: int = 0,
    span: int = 1,
    growth: int = 0,
    by_distance: torch.Tensor | None = None,
    both_ways: bool = False,
) -> None:
    assert q.stride(-1) == 1, "the kernel reads a head's values as one run"
    assert sinks is None or sinks.stride(-1) == 1
    kv_heads, dim = columns.keys.shape[1], out.shape[-1]
    group = q.shape[1] // kv_heads
    latent = columns.keys is columns.values
    tile = tiles(group if selected is not None else group * paging.max_query_len, q, latent)
    heads = group if selected is None else -(-group // tile.rows) * tile.rows
    rotary_dim = q.shape[-1] - dim
    grid = (-(-paging.max_query_len * heads // tile.rows), kv_heads, paging.requests.shape[0])
    if 0 in grid:
        return
    paged_flash[grid](
        q,
        columns.keys,
        columns.rotary,
        columns.values,
        columns.scales,
        out,
        sinks if sinks is not None else q,
        selected if selected is not None else q,
        by_distance if by_distance is not None else q,
        paging.table,
        paging.slot_map if paging.slot_map is not None else q,
        paging.requests,
        paging.seq_lens,
        paging.query_starts,
        scale * LOG2E.value,
        cap * LOG2E.value,
        1 / math.log2(growth) if growth else 0.0,
        *q.stride()[:2],
        *columns.keys.stride()[:2],
        *columns.rotary.stride()[:2],
        *columns.values.stride()[:2],
        columns.scales.stride(0),
        *out.stride()[:2],
        paging.table.stride(0),
        sinks.stride(0) if sinks is not None and sinks.dim() == 2 else 0,
        *(by_distance.stride()[:2] if by_distance is not None else (0, 0)),
        MAPPED=paging.slot_map is not None,
        SELECTED=selected.shape[-1] * span if selected is not None else 0,
        SPAN=span,
        WINDOW=window,
        CHUNK=chunk,
        BOTH_WAYS=both_ways,
        CAPPED=cap > 0,
        GROWTH=growth,
        EXTENT=0 if by_distance is None else by_distance.shape[-1],
        HAS_SINKS=sinks is not None,
        GROUP=group,
        HEADS=heads,
        DIM=dim,
        ROTARY=rotary_dim,
        QUANT=columns.quant_block,
        LATENT=latent,
        BLOCK_DIM=max(16, 1 << (dim - 1).bit_length()),
        BLOCK_ROTARY=max(16, 1 << (rotary_dim - 1).bit_length()),
        BLOCK_M=tile.rows,
        BLOCK_N=tile.keys,
        num_warps=tile.warps,
        num_stages=2,
    )
