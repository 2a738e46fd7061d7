"""The default experts on a GPU: the reference's answers, captured too, in the memory that is predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, Vocabulary
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import rank_layout
from runtime.server.parallel_config import ParallelConfig
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from tests.runtime.configs import runtime_config

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

HIDDEN, INNER, EXPERTS, TOP_K = 1024, 384, 16, 4


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator, device="cuda") * 0.1).to(dtype)


def _backend(name: str = "triton", shared: int = 0) -> MoEBackend:
    model = ModelConfig(
        model_type="qwen3_moe",
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        vocabulary=Vocabulary(128),
        max_position=128,
        moe=MoEConfig(EXPERTS, TOP_K, INNER, shared),
    )
    return make_backend(model, runtime_config(moe_runner_backend=name), rank_layout(ParallelConfig(), 0))


def _weights(first: int = 0, local: int = EXPERTS, dtype: torch.dtype = torch.bfloat16) -> ExpertWeights:
    mine = slice(first, first + local)
    w13, w2 = (_random(EXPERTS, *shape, dtype=dtype) for shape in ((2 * INNER, HIDDEN), (HIDDEN, INNER)))
    return ExpertWeights(w13[mine].clone(), w2[mine].clone(), EXPERTS, first)


def _in_fp8(block: tuple[int, int] | None) -> ExpertWeights:
    plain = _weights()
    w13, w2 = (torch.clamp(w.float() * 400, -440, 440).to(torch.float8_e4m3fn) for w in (plain.w13, plain.w2))
    if block is None:
        scales = [torch.rand(EXPERTS, device="cuda") * 0.01 + 1e-3 for _ in range(2)]
        return ExpertWeights(w13, w2, EXPERTS, w13_scale=scales[0], w2_scale=scales[1])
    shapes = [
        (EXPERTS, *(-(-size // by) for size, by in zip(w.shape[1:], block, strict=True))) for w in (w13, w2)
    ]
    scales = [torch.rand(shape, device="cuda") * 0.01 + 1e-3 for shape in shapes]
    return ExpertWeights(w13, w2, EXPERTS, w13_scale=scales[0], w2_scale=scales[1], block=block)


def _topk(rows: int) -> TopK:
    logits = _random(rows, EXPERTS, seed=5, dtype=torch.float32) * 10
    scores, ids = logits.softmax(-1).topk(TOP_K)
    return TopK(ids.int(), scores, logits)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def _compare(rows: int, weights: ExpertWeights, dtype: torch.dtype = torch.bfloat16) -> float:
    x, topk = _random(rows, HIDDEN, dtype=dtype), _topk(rows)
    want = _backend("torch").forward(x.clone(), topk, weights)
    return _error(_backend().forward(x, topk, weights), want)


@pytest.mark.parametrize("rows", [1, 3, 16, 17, 300, 4096])
def test_bf16_equals_the_reference(rows: int) -> None:
    assert _compare(rows, _weights()) < 1e-2


def test_fp32_is_computed_in_fp32() -> None:
    assert _compare(33, _weights(dtype=torch.float32), torch.float32) < 1e-5


@pytest.mark.parametrize("rows", [1, 64, 500])
@pytest.mark.parametrize("block", [None, (128, 128)])
def test_fp8_equals_the_reference(rows: int, block: tuple[int, int] | None) -> None:
    assert _compare(rows, _in_fp8(block)) < 6e-2


def test_biases_and_a_clamped_gate() -> None:
    biases = {"w13_bias": _random(EXPERTS, 2 * INNER), "w2_bias": _random(EXPERTS, HIDDEN)}
    assert _compare(64, replace(_weights(), swiglu=(1.7, 0.3), **biases)) < 1e-2


def test_the_parts_of_expert_parallel_ranks_add_up() -> None:
    x, topk = _random(64, HIDDEN), _topk(64)
    want = _backend("torch").forward(x.clone(), topk, _weights())
    total = torch.zeros_like(want, dtype=torch.float32)
    for first in range(0, EXPERTS, 4):
        total += _backend().forward(x.clone(), topk, _weights(first, 4)).float()
    assert _error(total, want) < 1e-2


def test_rows_that_no_expert_takes_are_zero() -> None:
    x, topk = _random(40, HIDDEN), _topk(40)
    topk.ids[7:9] = -1
    topk.ids[20] = EXPERTS
    got = _backend().forward(x, topk, _weights())
    assert not got[7:9].any() and not got[20].any() and got[0].any()


def test_a_captured_graph_replays_other_routings() -> None:
    backend, weights, topk = _backend(shared=INNER), _weights(), _topk(32)
    x = _random(32, HIDDEN)
    backend.forward(x, topk, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = backend.forward(x, topk, weights)
    for seed in (1, 2, 3):
        x.copy_(_random(32, HIDDEN, seed=seed))
        logits = _random(32, EXPERTS, seed=seed, dtype=torch.float32)
        scores, ids = logits.softmax(-1).topk(TOP_K)
        topk.ids.copy_(ids)
        topk.weights.copy_(scores)
        graph.replay()
        assert _error(out, _backend("torch").forward(x, topk, weights)) < 1e-2


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("rows", [5, 2048])
def test_a_call_takes_what_its_prediction_says(rows: int, fp8: bool) -> None:
    weights, backend = _in_fp8((128, 128)) if fp8 else _weights(), _backend()
    x, topk = _random(rows, HIDDEN), _topk(rows)
    backend.forward(x.clone(), topk, weights)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    backend.forward(x, topk, weights)
    measured = torch.cuda.max_memory_allocated() - before
    model = CachingAllocator(1 << 40)
    with AllocationTracker(model, "meta"):
        held = {name: _meta(getattr(weights, name)) for name in ("w13", "w2", "w13_scale", "w2_scale")}
        there = TopK(_meta(topk.ids), _meta(topk.weights), _meta(topk.logits))
        rows_there = _meta(x)
        start = model.allocated
        backend.forward(rows_there, there, replace(weights, **held))
        predicted = model.peak_allocated - start
    # A block that is too small to be split counts whole, and what was there before decides about it.
    assert measured == pytest.approx(predicted, abs=1 << 20)


def _meta(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else torch.empty_like(tensor, device="meta")
