"""The whole start: its phases in order, the same on a CPU and predicted, and a rank that then serves."""

from typing import Any

import pytest
import torch

from runtime.devices.cpu import Cpu
from runtime.devices.meta import Meta
from runtime.forward.batch import ForwardBatch
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.config import SpeculativeConfig
from runtime.server.errors import NoRoomForTokens
from runtime.server.parallel import ParallelConfig
from runtime.server.units import GIB, MIB
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.ranks import Ranks
from tests.runtime.starts import (
    eager_logits,
    make_glm,
    make_meta,
    make_preset,
    make_qwen,
    make_runner,
    make_runtime,
    replayed_logits,
    sizes,
)

CONTROL_BYTES = 16 * 512
MODELS = {"qwen": make_qwen, "glm": make_glm}
DP4 = ParallelConfig(tp=4, dp=4, enable_dp_attention=True)


def _started(*args: Any, **kwargs: Any) -> ModelRunner:
    runner = make_runner(*args, **kwargs)
    runner.start()
    return runner


_REQUESTS = (1, 2, 3)


def _prefill(runner: ModelRunner, lens: list[int]) -> ForwardBatch:
    tokens = [[(7 * n + 3 * i) % 311 for i in range(length)] for n, length in enumerate(lens)]
    return make_extend_batch(tokens, _REQUESTS, runner.kv)


def _assert_alike(one: list[tuple[str, int, int, int]], other: list[tuple[str, int, int, int]]) -> None:
    """But for control tensors of a few bytes: on the CPU they count, and gloo holds them a little longer."""
    assert [name for name, *_ in one] == [name for name, *_ in other]
    for (name, *first), (_, *second) in zip(one, other, strict=True):
        assert first[:2] == pytest.approx(second[:2], abs=CONTROL_BYTES), name


class TestStory:
    def test_every_step_is_a_phase(self) -> None:
        runner = _started(make_qwen(), Cpu())
        assert [phase.name for phase in runner.recorder.phases] == [
            *("communicator", "weights", "kv pool", "attention backend", "autotune"),
            *("prefill graphs", "decode graphs", "ready"),
        ]

    def test_steps_that_flags_turn_off_are_left_out(self) -> None:
        runtime = make_runtime(decode_graphs=(), prefill_graphs=(), disable_autotune=True)
        runner = _started(make_qwen(), make_meta(), runtime=runtime)
        names = [phase.name for phase in runner.recorder.phases]
        assert names == ["communicator", "weights", "kv pool", "attention backend", "ready"]

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("parallel", [ParallelConfig(), DP4], ids=["tp1", "tp4 dp4"])
    def test_a_prediction_equals_a_start_that_a_cpu_counts(self, name: str, parallel: ParallelConfig) -> None:
        started = [_started(MODELS[name](), device, parallel) for device in (Cpu(), make_meta(fold=False))]
        on_cpu, predicted = (sizes(runner.recorder.phases) for runner in started)
        _assert_alike(on_cpu, predicted)

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("parallel", [ParallelConfig(), DP4], ids=["tp1", "tp4 dp4"])
    def test_folding_changes_no_number(self, name: str, parallel: ParallelConfig) -> None:
        model = MODELS[name](8)
        started = [_started(model, Meta(1 << 40, fold=fold), parallel) for fold in (True, False)]
        folded, unfolded = (runner.recorder.phases for runner in started)
        assert sizes(folded) == sizes(unfolded)
        for one, other in zip(folded, unfolded, strict=True):
            assert [held.bytes for held in one.largest] == [held.bytes for held in other.largest]


@pytest.mark.parametrize("name", MODELS)
def test_graphs_answer_as_eager_forwards_do(name: str) -> None:
    runner = _started(MODELS[name](), Cpu())
    lens = [9, 4, 6]
    batch = _prefill(runner, lens)
    torch.testing.assert_close(replayed_logits(runner, batch), eager_logits(runner, batch))
    for step in range(3):
        decode = make_decode_batch([11, 12, 13], _REQUESTS, runner.kv, [length + step for length in lens])
        torch.testing.assert_close(replayed_logits(runner, decode), eager_logits(runner, decode))


class TestAutotune:
    def _autotune_log(self, **options: Any) -> list[Any]:
        device = make_meta(log=True, fold=False)
        _started(make_glm(), device, DP4, **options)
        assert device.tracker.log is not None
        return [entry for entry in device.tracker.log if entry.phase == "autotune"]

    def test_nothing_has_the_vocabularys_width(self) -> None:
        log = self._autotune_log()
        assert len(log) > 50
        widths = {320, 320 // 4}
        assert not [entry for entry in log if entry.shape and entry.shape[-1] in widths]

    def test_the_head_can_be_run_to_see_what_it_took(self) -> None:
        of_all_rows = 2 * 4 * 320 * 4  # requests a rank, DP ranks, vocabulary, fp32
        gathered = [e for e in self._autotune_log(lm_head_in_autotune=True) if e.nbytes == of_all_rows]
        assert len(gathered) == 2, "once as shards, once copied into rows"


class TestDrafts:
    @pytest.mark.parametrize("device", ["cpu", "meta"])
    @pytest.mark.parametrize(
        ("settings", "runners"),
        [
            ({}, ["draft", "draft_extend"]),
            ({"eagle_topk": 2, "num_draft_tokens": 6}, ["draft", "draft_extend"]),
            ({"num_steps": 1, "num_draft_tokens": 2}, ["draft_extend"]),
        ],
    )
    def test_graphs_of_drafts_are_captured(self, device: str, settings: dict, runners: list[str]) -> None:
        runtime = make_runtime(speculative=SpeculativeConfig(**settings))
        runner = _started(make_qwen(), Cpu() if device == "cpu" else make_meta(), DP4, runtime)
        assert runner.draft_runners is not None
        captured = [r for r in (runner.draft_runners.steps, runner.draft_runners.extend) if r]
        assert [r.name for r in captured] == runners
        assert all(set(r.graphs) == set(r.sizes) for r in captured)

    def test_a_draft_uses_the_targets_tables(self) -> None:
        runner = _started(make_qwen(), make_meta(), runtime=make_runtime(speculative=SpeculativeConfig()))
        phases = {phase.name: phase for phase in runner.recorder.phases}
        table = 320 * 64 * 4
        assert phases["draft weights"].persistent_bytes > 2 * table
        pool = phases["draft kv pool"]
        assert pool.peak_bytes - pool.allocated_bytes == 2 * table
        assert runner.draft is not None and runner.draft.embedding is runner.decoder.embedding

    def test_a_draft_extend_graph_answers_as_the_model_does(self) -> None:
        sizes = decode_graph_sizes(8, speculative=True)
        runtime = make_runtime(speculative=SpeculativeConfig(), decode_graphs=sizes)
        runner = _started(make_qwen(), Cpu(), runtime=runtime)
        assert runner.draft_runners is not None and runner.draft is not None
        extend = runner.draft_runners.extend
        batch = extend.dummy_batch(3)
        hidden = torch.randn(12, 64)
        extend.hidden[:12].copy_(hidden)
        with torch.inference_mode():
            eager = runner.draft(batch, runner.draft_kv, hidden)
        torch.testing.assert_close(extend.replay(batch)["logits"][:3], eager.next_token_logits)


class TestMemory:
    def test_a_start_that_does_not_fit_fails_in_its_phase(self) -> None:
        device = make_meta(total=64 * MIB)
        runner = make_runner(make_qwen(), device, kv_tokens=1 << 20)
        with pytest.raises(torch.OutOfMemoryError):
            runner.start()
        failure = runner.recorder.failure
        assert failure is not None and failure.out_of_memory is not None
        oom = failure.out_of_memory
        assert oom.where.startswith("forward/kv_pool.py")
        assert [phase.name for phase in runner.recorder.phases] == ["communicator", "weights"]

    def test_weights_that_leave_no_room_are_told(self) -> None:
        runtime = make_runtime(mem_fraction_static=0.1)
        runner = make_runner(make_qwen(), make_meta(16 * MIB), runtime=runtime, kv_tokens=None)
        with pytest.raises(NoRoomForTokens, match=r"--mem-fraction-static 0\.1"):
            runner.start()

    def test_the_pool_takes_the_static_fraction(self) -> None:
        runner = _started(make_qwen(), make_meta(GIB), kv_tokens=None)
        pool = next(phase for phase in runner.recorder.phases if phase.name == "kv pool")
        assert pool.allocated_bytes == pytest.approx(0.5 * GIB, rel=0.02)


# A stock server's own start on one H200 (150109880320 bytes), torch 2.11+cu130, FlashInfer 0.7.2
REAL = {"weights": 61_092_812_288, "kv pool": 127_627_275_264}
REAL_TOKENS = 669_939


def test_a_stock_server_on_an_h200_is_predicted() -> None:
    memory = {"mem_fraction_static": 0.85, "context_length": 40960, "max_running_requests": None}
    sizes = {"prefill_tokens": 8192, "decode_graphs": decode_graph_sizes(256), **memory}
    tuned = {"moe_runner_backend": "flashinfer_cutlass", "autotune_cached": True}
    runtime = make_runtime(dtype="bfloat16", **sizes, **tuned)
    runner = _started(make_preset("Qwen3-30B-A3B"), Meta(150_109_880_320), runtime=runtime, kv_tokens=None)
    assert runner.plan.tokens == pytest.approx(REAL_TOKENS, rel=0.005)
    assert runner.plan.max_running_requests == 4096
    assert len(runner.runtime.graphs.prefill) == 58
    phases = {phase.name: phase for phase in runner.recorder.phases}
    for name, allocated in REAL.items():
        assert phases[name].allocated_bytes == pytest.approx(allocated, rel=0.005), name


def _started_among(comm: Communicator, parallel: ParallelConfig) -> ModelRunner:
    options = StartOptions(kv_tokens=512)
    runner = ModelRunner(make_qwen(4), parallel, make_runtime(), Cpu(), lambda: comm, options=options)
    runner.start()
    return runner


def _serve_distributed(comm: Communicator, parallel: ParallelConfig) -> float:
    """By how much graphs and eager forwards differ on this rank."""
    runner = _started_among(comm, parallel)
    lens = [5, 4, 6]
    batches = _prefill(runner, lens), make_decode_batch([11, 12, 13], _REQUESTS, runner.kv, lens)
    differences = []
    for batch in batches:
        heads = [batch.num_requests] * parallel.attn_dp
        peers = PeerRows([batch.num_tokens] * parallel.attn_dp, heads, batch is batches[0])
        batch = runner.dp_batch(batch, peers)
        differences.append(replayed_logits(runner, batch) - eager_logits(runner, batch))
    return max(difference.abs().max().item() for difference in differences)


def test_ranks_serve_by_graphs_together(ranks: Ranks) -> None:
    parallel = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
    assert max(ranks.run(parallel, _serve_distributed, parallel)) < 1e-5


def _start_distributed(comm: Communicator, parallel: ParallelConfig) -> list[tuple[str, int, int, int]]:
    return sizes(_started_among(comm, parallel).recorder.phases)


@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(tp=2, pp=2), ParallelConfig(tp=4, dp=2, enable_dp_attention=True)],
    ids=["tp2 pp2", "tp4 dp2"],
)
def test_a_virtual_rank_starts_as_a_real_one(ranks: Ranks, parallel: ParallelConfig) -> None:
    real = ranks.run(parallel, _start_distributed, parallel)
    for rank in (0, parallel.world_size - 1):
        virtual = make_runner(make_qwen(4), Cpu(), parallel, rank=rank)
        virtual.start()
        _assert_alike(sizes(virtual.recorder.phases), real[rank])
