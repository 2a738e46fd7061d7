"""The kernels of residual streams and of latents with sinks, interpreted on a CPU: what its own say."""

from __future__ import annotations

import pytest
import torch

from runtime.layers import stream_kernels, stream_ops
from runtime.layers.attention import flash, reference
from tests.runtime.attention_cases import LENGTHS
from tests.runtime.interpreted_blocks import _paging

EPS, NORM_EPS, MAGNITUDE = 1e-2, 1e-6, 0.7


@pytest.mark.parametrize(("tokens", "count"), [(1, 1), (3, 2), (17, 3), (18, 4)])
@pytest.mark.parametrize("mixes", [True, False])
def test_streams_are_collapsed_and_spread_as_on_a_cpu(tokens: int, count: int, mixes: bool) -> None:
    torch.manual_seed(0)
    width, outputs = 72, (2 + count) * count if mixes else 2 * count
    streams, answer = torch.randn(tokens, count, width), torch.randn(tokens, width)
    weights = torch.randn(outputs, count * width) / 20, torch.randn(outputs), torch.randn(3 if mixes else 2)
    how = (4, EPS) if mixes else (MAGNITUDE, EPS)
    name = "collapse" if mixes else "collapse_apart"
    here, there = (
        getattr(of, name)(streams, *weights, *how, NORM_EPS) for of in (stream_ops, stream_kernels)
    )
    _, post, *mixed = here
    spread = (stream_ops.spread if mixes else stream_ops.spread_apart)(answer, streams, post, *mixed)
    kept = stream_kernels.spread(answer, streams, post, mixed[0] if mixes else None)
    for want, got in zip((*here, spread), (*there, kept), strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["decode", "ragged prefill"])
@pytest.mark.parametrize("chosen", [None, 5])
def test_latents_beside_a_sink_are_attended_to_as_on_a_cpu(name: str, chosen: int | None) -> None:
    torch.manual_seed(0)
    lengths = LENGTHS[name]
    paging, tokens = _paging(lengths), sum(lengths.new)
    q, latents = torch.randn(tokens, 3, 40), torch.randn(int(paging.seq_lens.sum()) + 1, 1, 40)
    selected = None
    if chosen is not None:
        ends = [
            end
            for first, new in zip(lengths.prefixes, lengths.new, strict=True)
            for end in range(first, first + new)
        ]
        kept = [torch.randperm(end + 1)[:chosen] for end in ends]
        selected = torch.full((tokens, chosen), -1, dtype=torch.int32)
        for row, part in zip(selected, kept, strict=True):
            row[: len(part)] = part
    told = q, latents, paging, 32, 0.3, selected, torch.randn(3)
    torch.testing.assert_close(flash.latent(*told), reference.latent(*told), atol=1e-5, rtol=1e-5)
