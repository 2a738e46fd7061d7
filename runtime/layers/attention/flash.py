"""Launches the flash kernel: chooses the columns of the pool that it reads, and its tiles."""

import torch
from torch import Tensor

from runtime.forward.kv_packing import PackedRow
from runtime.layers.attention.flash_kernel import LOG2E, paged_flash
from runtime.layers.attention.reference import AttentionLayer, Paging


def grouped(q: Tensor, keys: Tensor, values: Tensor, paging: Paging, layer: AttentionLayer) -> Tensor:
    out = _output(q, paging, q.shape[-1])
    _launch(q, (keys, values, keys, keys), 0, out, paging, layer.scale, layer.window or 0, layer.sinks)
    return out


def latent(
    q: Tensor, latents: Tensor, paging: Paging, value_dim: int, scale: float, selected: Tensor | None
) -> Tensor:
    out = _output(q, paging, value_dim)
    if latents.dtype is torch.uint8:
        row = PackedRow(value_dim, q.shape[-1] - value_dim)
        main, scales, rotary = row.views(latents)
        columns, block = (main, main, rotary, scales), row.block
    else:
        main, block = latents[..., :value_dim], 0
        columns = main, main, latents[..., value_dim:], latents
    _launch(q, columns, block, out, paging, scale, selected=selected)
    return out


def _output(q: Tensor, paging: Paging, dim: int) -> Tensor:
    """Return the output tensor, zeroed if the batch may hold rows that belong to no request."""
    shape = (*q.shape[:2], dim)
    every_row_has_a_request = q.shape[0] == paging.requests.shape[0] * paging.max_query_len
    return q.new_empty(shape) if every_row_has_a_request else q.new_zeros(shape)


def _tiles(rows: int, q: Tensor, latent: bool) -> tuple[int, int, int]:
    """Return rows, keys and warps that fit the 227 KiB of shared memory of an H200's multiprocessor."""
    needed = max(16, 1 << (rows - 1).bit_length())
    if q.dtype is torch.float32:
        return 16, 16, 4
    return (min(64, needed), 32, 8) if latent else (min(128, needed), 64, 8 if needed >= 128 else 4)


def _launch(
    q: Tensor,
    columns: tuple[Tensor, Tensor, Tensor, Tensor],
    quant_block: int,
    out: Tensor,
    paging: Paging,
    scale: float,
    window: int = 0,
    sinks: Tensor | None = None,
    selected: Tensor | None = None,
) -> None:
    """Launch the kernel. `columns` are the layer's keys, values, rotary parts and scales in the pool."""
    assert q.stride(-1) == 1, "the kernel reads a head's values as one run"
    keys, values, rotary, scales = columns
    kv_heads, dim = keys.shape[1], out.shape[-1]
    group, rotary_dim = q.shape[1] // kv_heads, q.shape[-1] - dim
    latent = keys is values
    rows, width, warps = _tiles(group if selected is not None else group * paging.max_query_len, q, latent)
    heads = group if selected is None else -(-group // rows) * rows
    grid = (-(-paging.max_query_len * heads // rows), kv_heads, paging.requests.shape[0])
    if 0 in grid:
        return
    paged_flash[grid](
        q, keys, rotary, values, scales, out,
        q if sinks is None else sinks, q if selected is None else selected, paging.table,
        q if paging.slot_map is None else paging.slot_map, paging.requests, paging.seq_lens,
        paging.query_starts, scale * LOG2E.value, *q.stride()[:2], *keys.stride()[:2],
        *rotary.stride()[:2], *values.stride()[:2], scales.stride(0),
        *out.stride()[:2], paging.table.stride(0), MAPPED=paging.slot_map is not None,
        SELECTED=0 if selected is None else selected.shape[-1], WINDOW=window, HAS_SINKS=sinks is not None,
        GROUP=group, HEADS=heads, DIM=dim, ROTARY=rotary_dim, QUANT=quant_block, LATENT=latent,
        BLOCK_DIM=max(16, 1 << (dim - 1).bit_length()),
        BLOCK_ROTARY=max(16, 1 << (rotary_dim - 1).bit_length()), BLOCK_M=rows, BLOCK_N=width,
        num_warps=warps, num_stages=2,
    )  # fmt: skip
