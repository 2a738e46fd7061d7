"""DeepSeek-V4's kernels on a GPU against the CPU's own: groups of tokens, and several residual streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pytest
import torch

from runtime.forward.batch import ForwardBatch, make_extend_batch
from runtime.forward.compressed_pool import CompressedPool, CompressedRow, GroupBuffers
from runtime.forward.kv_pool import KVPool, PoolShape, ReqToTokenPool, SlotAllocator
from runtime.layers import stream_ops
from runtime.layers.attention import base, compressed
from runtime.moe.grouped import swiglu
from runtime.moe.torch_backend import activate

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
WIDTH, INDEX, TURNED, HEADS = 512, 128, 64, 64
TOKENS, CONTEXT = 1200, 700
ENDS = [(0, 0, 0), (130, 3, 600), (131, 4, 601), (259, 128, 602), (260, 129, 640)]


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _close(got: torch.Tensor, want: torch.Tensor, most: float) -> None:
    off = (got.float().cpu() - want.float().cpu()).abs().max() / want.float().abs().max()
    assert off < most, f"{off:.1e}"


@dataclass
class _Layer:
    """Of rate 4, groups overlap, and an indexer chooses among them."""

    rate: int
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        self.chooses = self.rate == 4
        state = 2 * (1 + self.chooses)
        row = CompressedRow(WIDTH, state * WIDTH, INDEX * self.chooses, state * INDEX * self.chooses)
        self.cache = CompressedPool(PoolShape(TOKENS, 1, (0,), self.dtype, self.device), {0: row})
        requests = ReqToTokenPool(3, CONTEXT, self.device)
        self.pool = KVPool(requests, SlotAllocator(TOKENS, self.device), self.cache)
        self.angles = _random(9, CONTEXT, TURNED).to(self.device)

    def answers(self) -> Iterator[torch.Tensor]:
        """Chunk by chunk, prefilled and decoded."""
        requests = self.pool.requests.allocate(3)
        for step, (start, end) in enumerate(pairwise(ENDS)):
            new = [[0] * (b - a) for a, b in zip(start, end, strict=True)]
            yield self._answer(make_extend_batch(new, requests, self.pool, start), step)

    def _answer(self, batch: ForwardBatch, step: int) -> torch.Tensor:
        q, chosen = self._rows(batch, step, HEADS, WIDTH), None
        compressed.unit_norm_(q, 1e-6)
        compressed.turn_(q, self.angles, batch.positions)
        groups = self._compress(self.cache.compressed(0), WIDTH, batch, step)
        if self.chooses:
            keys = self._compress(self.cache.indexed(0), INDEX, batch, step)
            asked, weights = self._rows(batch, step, 64, INDEX), self._rows(batch, step, 64).float()
            chosen = base.highest(asked, keys, weights, 64, batch, self.pool, self.rate)
        new, sinks = self._rows(batch, step, WIDTH), _random(8, HEADS).to(self.device)
        told = (self.cache.keys(0), groups, chosen, sinks, batch, self.pool, self.rate, 128, WIDTH**-0.5)
        answer = compressed.attend(q, new, *told)
        compressed.turn_(answer, self.angles, batch.positions, back=True)
        return answer

    def _compress(self, kept: GroupBuffers, width: int, batch: ForwardBatch, step: int) -> torch.Tensor:
        state = width * (1 + self.chooses)
        new, bias = self._rows(batch, step, 2 * state), _random(7, self.rate, state).to(self.device)
        weight = (_random(6, width) + 2).to(self.device)
        told = (bias, weight, 1e-6, self.angles, batch, self.pool, self.rate, self.chooses)
        compressed.compress(new, kept.tokens, kept.groups, *told)
        return kept.groups

    def _rows(self, batch: ForwardBatch, step: int, *shape: int) -> torch.Tensor:
        return _random(step + sum(shape), batch.num_tokens, *shape).to(self.device, self.dtype)


@pytest.mark.parametrize("rate", [4, 128])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_groups_are_attended_as_on_the_cpu(
    rate: int, dtype: torch.dtype, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SCORE_BYTES", 64 << 10)  # in many parts
    if dtype is torch.bfloat16 and rate == 4:
        pytest.skip("rounded scores choose other groups")
    layers = [_Layer(rate, dtype, device) for device in (GPU, CPU)]
    for got, want in zip(*(layer.answers() for layer in layers), strict=True):
        _close(got, want, most)


@pytest.mark.parametrize("tokens", [1, 37])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_streams_are_collapsed_and_spread_as_on_the_cpu(tokens: int, count: int) -> None:
    hidden, outputs = 520, (2 + count) * count
    streams, answer = _random(1, tokens, count, hidden), _random(2, tokens, hidden)
    matrix, base_, scale = _random(3, outputs, count * hidden) / 20, _random(4, outputs), _random(5, 3)

    def run(device: torch.device) -> list[torch.Tensor]:
        here = streams.to(device)
        told = (matrix.to(device), base_.to(device), scale.to(device))
        row, post, mixed = stream_ops.collapse(here, *told, 20, 1e-6, 1e-6)
        spread = stream_ops.spread(answer.to(device), here, post, mixed)
        head = stream_ops.gathered(here, told[0][:count], told[1][:count], told[2][:1], 1e-6, 1e-6)
        return [row, post, mixed, spread, head]

    for got, want in zip(run(GPU), run(CPU), strict=True):
        _close(got, want, 1e-4)


@pytest.mark.parametrize("tokens", [1, 37])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_streams_that_stay_apart_are_as_on_the_cpu(tokens: int, count: int) -> None:
    streams, answer = _random(1, tokens, count, 520), _random(2, tokens, 520)
    weights = _random(3, 2 * count, count * 520) / 20, _random(4, 2 * count), _random(5, 2)

    def run(device: torch.device) -> list[torch.Tensor]:
        here, told = streams.to(device), [one.to(device) for one in weights]
        row, post = stream_ops.collapse_apart(here, *told, 0.7, 1e-2, 1e-6)
        return [row, post, stream_ops.spread_apart(answer.to(device), here, post)]

    for got, want in zip(run(GPU), run(CPU), strict=True):
        _close(got, want, 1e-4)


@pytest.mark.parametrize("told", [[1.702, 7.0], [1.0, 0.0, 0.5], [0.5]])
def test_capped_gates_are_the_cpus(told: list[float]) -> None:
    x = _random(1, 33, 2 * 96)
    _close(swiglu(x.to(GPU), told), activate(x, told, 96), 1e-5)


def test_the_ways_of_streams_are_captured() -> None:
    streams, matrix = _random(1, 4, 4, 64).to(GPU), _random(3, 24, 256).to(GPU)
    base_, scale = _random(4, 24).to(GPU), _random(5, 3).to(GPU)
    run = partial(stream_ops.collapse, streams, matrix, base_, scale, 20, 1e-6, 1e-6)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    streams.copy_(_random(9, 4, 4, 64))
    graph.replay()
    for got, want in zip(captured, run(), strict=True):
        _close(got, want, 1e-6)
