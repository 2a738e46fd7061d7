"""What n-grams are made of: each token with those before it, their hashes, and a convolution between tokens
that stand apart. Plain torch, alike on every device."""

from __future__ import annotations

import torch

from runtime.layers.recurrence import Rows


class _Places:
    """Of which request each row is, and where in its new tokens."""

    def __init__(self, rows: Rows, count: int) -> None:
        self.starts = rows.query_starts[:-1]
        self.lens = rows.query_starts[1:] - self.starts
        self.at = torch.arange(count, device=self.starts.device)
        behind = torch.searchsorted(rows.query_starts, self.at, right=True) - 1
        self.request = behind.clamp(max=len(self.starts) - 1)
        self.offset = self.at - self.starts[self.request]
        self.is_new = rows.seq_lens == self.lens


def token_windows(ids: torch.Tensor, kept: torch.Tensor, rows: Rows, end: int) -> torch.Tensor:
    """[T] -> [T, n]: a token, the one before it, and so on. Nothing counts from before the last `end`.

    `kept` [slots, n - 1] are the last tokens of each request, the latest behind: they are replaced.
    """
    places, before = _Places(rows, len(ids)), kept.shape[1]
    earlier = kept[rows.slots].masked_fill(places.is_new[:, None], end)
    found = [ids]
    for back in range(1, before + 1):
        old = earlier[places.request, (before + places.offset - back).clamp(0, before - 1)]
        found.append(torch.where(places.offset >= back, ids[(places.at - back).clamp(min=0)], old))
    if rows.keeps:
        column = torch.arange(before, device=ids.device)
        kept[rows.slots] = _last(places, column, ids, earlier)
    windows = torch.stack(found, dim=1)
    ended = (windows[:, 1:] == end).cumsum(1) > 0
    return torch.cat([windows[:, :1], windows[:, 1:].masked_fill(ended, end)], dim=1)


def _last(places: _Places, column: torch.Tensor, rows: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
    """The last of `earlier` [requests, columns, ...] and then the new ones."""
    steps = len(column)
    source = places.lens[:, None] - (steps - column)  # below 0: of those that were there
    new = rows[(places.starts[:, None] + source).clamp(0, len(rows) - 1)]
    index = (source + steps).clamp(max=steps - 1)
    shape = (*index.shape, *(1,) * (earlier.dim() - 2))
    old = earlier.gather(1, index.view(shape).expand_as(earlier))
    return torch.where((source >= 0).view(shape), new, old)


def hashes(
    windows: torch.Tensor, factors: torch.Tensor, sizes: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """[T, n] -> [T, heads] rows of a table: those of pairs, then of three tokens, and so on."""
    count = windows.shape[1]
    heads = len(sizes) // (count - 1)
    mixed, found = windows[:, 0] * factors[0], []
    for place in range(1, count):
        mixed = mixed ^ (windows[:, place] * factors[place])
        own = slice((place - 1) * heads, place * heads)
        found.append(mixed[:, None].remainder(sizes[own]) + starts[own])
    return torch.cat(found, dim=1)


def spaced_convolution(
    x: torch.Tensor, weight: torch.Tensor, seen: torch.Tensor, rows: Rows, space: int
) -> torch.Tensor:
    """Of each channel: x [T, channels], weight [channels, taps], each `space` tokens before the next; `seen`
    [slots, channels, steps] are the last rows of each request, and replaced."""
    places, steps = _Places(rows, len(x)), seen.shape[2]
    earlier = seen[rows.slots].transpose(1, 2).to(x.dtype).masked_fill(places.is_new[:, None, None], 0)
    out = x.float() * weight[:, -1].float()
    for tap in range(1, weight.shape[1]):
        back = tap * space
        old = earlier[places.request, (steps + places.offset - back).clamp(0, steps - 1)]
        inside = (places.offset >= back)[:, None]
        found = torch.where(inside, x[(places.at - back).clamp(min=0)], old)
        out += found.float() * weight[:, -1 - tap].float()
    if rows.keeps and steps:
        column = torch.arange(steps, device=x.device)
        seen[rows.slots] = _last(places, column, x, earlier).transpose(1, 2).to(seen.dtype)
    return out.to(x.dtype)
