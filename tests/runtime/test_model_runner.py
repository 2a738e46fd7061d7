"""The whole start: its phases in order, the same on a CPU and predicted, and a rank that then serves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.decoder.draft import DraftModel
from runtime.devices.cpu import Cpu
from runtime.devices.meta import Meta
from runtime.forward.batch import ForwardBatch, make_decode_batch, make_extend_batch
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.config import SpeculativeConfig
from runtime.server.errors import NoRoomForTokens
from runtime.server.parallel_config import ParallelConfig
from runtime.server.units import GIB, MIB
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from tests.runtime.ranks import Ranks
from tests.runtime.starts import make_glm, make_meta, make_preset, make_qwen, make_runner, make_runtime, sizes

CONTROL_BYTES = 16 * 512
MODELS = {"qwen": make_qwen, "glm": make_glm}
DP4 = ParallelConfig(tp=4, dp=4, enable_dp_attention=True)


def _started(*args: Any, **kwargs: Any) -> ModelRunner:
    runner = make_runner(*args, **kwargs)
    runner.start()
    return runner


def _prefill(runner: ModelRunner, lens: list[int]) -> tuple[list[int], ForwardBatch]:
    requests = runner.kv.requests.allocate(len(lens))
    tokens = [[(7 * n + 3 * i) % 311 for i in range(length)] for n, length in enumerate(lens)]
    return requests, make_extend_batch(tokens, requests, runner.kv)


def _assert_alike(one: list[tuple[str, int, int, int]], other: list[tuple[str, int, int, int]]) -> None:
    """But for control tensors of a few bytes: on the CPU they count, and gloo holds them a little longer."""
    assert [name for name, *_ in one] == [name for name, *_ in other]
    for (name, *first), (_, *second) in zip(one, other, strict=True):
        assert first[:2] == pytest.approx(second[:2], abs=CONTROL_BYTES), name


def _logits(result: Any) -> torch.Tensor:
    assert isinstance(result, LogitsOutput)
    assert result.next_token_logits is not None
    return result.next_token_logits.clone()


class TestStory:
    def test_every_step_is_a_phase(self) -> None:
        runner = _started(make_qwen(), Cpu())
        assert [phase.name for phase in runner.recorder.phases] == [
            "communicator",
            "weights",
            "kv pool",
            "attention backend",
            "autotune",
            "prefill graphs",
            "decode graphs",
            "ready",
        ]

    def test_steps_that_flags_turn_off_are_left_out(self) -> None:
        runtime = make_runtime(decode_graphs=(), prefill_graphs=(), disable_autotune=True)
        runner = _started(make_qwen(), make_meta(), runtime=runtime)
        names = [phase.name for phase in runner.recorder.phases]
        assert names == ["communicator", "weights", "kv pool", "attention backend", "ready"]

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("parallel", [ParallelConfig(), DP4], ids=["tp1", "tp4 dp4"])
    def test_a_prediction_equals_the_start_that_a_cpu_counts(
        self, name: str, parallel: ParallelConfig
    ) -> None:
        started = [_started(MODELS[name](), device, parallel) for device in (Cpu(), make_meta(fold=False))]
        on_cpu, predicted = (sizes(runner.recorder.phases) for runner in started)
        _assert_alike(on_cpu, predicted)

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("parallel", [ParallelConfig(), DP4], ids=["tp1", "tp4 dp4"])
    def test_folding_changes_no_number(self, name: str, parallel: ParallelConfig) -> None:
        model = MODELS[name](14)
        started = [_started(model, Meta(1 << 40, fold=fold), parallel) for fold in (True, False)]
        folded, unfolded = (runner.recorder.phases for runner in started)
        assert sizes(folded) == sizes(unfolded)
        for one, other in zip(folded, unfolded, strict=True):
            assert [held.bytes for held in one.largest] == [held.bytes for held in other.largest]

    def test_progress_is_told(self) -> None:
        told = []
        runner = make_runner(make_qwen(), make_meta())
        runner.progress = lambda name, done, total: told.append((name, done, total))
        runner.start()
        assert told[-1] == ("decode", 4, 4)
        assert ("prefill", 8, 8) in told


class TestServing:
    @pytest.mark.parametrize("name", MODELS)
    def test_graphs_answer_as_eager_forwards_do(self, name: str) -> None:
        runner = _started(MODELS[name](), Cpu())
        lens = [9, 4, 6]
        requests, batch = _prefill(runner, lens)
        assert runner.prefill_graphs is not None
        assert runner.prefill_graphs.can_run(batch)
        torch.testing.assert_close(_logits(runner.forward(batch)), _logits(runner.forward_eager(batch)))
        for step in range(3):
            step_batch = make_decode_batch(
                [11, 12, 13], requests, runner.kv, [length + step for length in lens]
            )
            assert runner.decode_graphs is not None
            assert runner.decode_graphs.graph_size(step_batch) == 4
            by_graph = _logits(runner.forward(step_batch))
            torch.testing.assert_close(by_graph, _logits(runner.forward_eager(step_batch)))

    def test_what_no_graph_holds_runs_eagerly(self) -> None:
        runner = _started(make_qwen(), Cpu())
        assert runner.prefill_graphs is not None
        _, batch = _prefill(runner, [40])
        assert not runner.prefill_graphs.can_run(batch)
        assert _logits(runner.forward(batch)).shape == (1, 320)

    def test_a_cached_prefix_runs_eagerly(self) -> None:
        runner = _started(make_qwen(), Cpu())
        requests, first = _prefill(runner, [6])
        runner.forward(first)
        rest = make_extend_batch([[1, 2]], requests, runner.kv, prefix_lens=[6])
        assert runner.prefill_graphs is not None
        assert not runner.prefill_graphs.can_run(rest)
        assert _logits(runner.forward(rest)).shape == (1, 320)


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

    def test_the_session_gets_the_dummy_forward(self) -> None:
        asked = []

        class Session:
            def run(self, forward: Any, what: str) -> None:
                asked.append(what)
                forward()

        runner = make_runner(make_qwen(), Cpu())
        runner.autotune = Session()
        runner.start()
        assert asked == ["decode"]

    def test_one_layer_of_each_kind_is_enough_to_tune(self) -> None:
        runner = _started(make_qwen(12), make_meta(), sample_layers=True, max_running_requests=64)
        assert runner.layers == (0, 1)
        assert runner.prefill_graphs is runner.decode_graphs is None
        assert "autotune" in [phase.name for phase in runner.recorder.phases]


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
    def test_their_graphs_are_captured(self, device: str, settings: dict, runners: list[str]) -> None:
        told = set()
        runtime = make_runtime(speculative=SpeculativeConfig(**settings))
        runner = make_runner(make_qwen(), Cpu() if device == "cpu" else make_meta(), DP4, runtime)
        runner.progress = lambda name, done, total: told.add(name)
        runner.start()
        assert told == {"prefill", "decode", *runners}
        assert runner.draft_runners is not None
        captured = [r for r in (runner.draft_runners.steps, runner.draft_runners.extend) if r]
        assert [r.name for r in captured] == runners
        assert all(set(r.graphs) == set(r.sizes) for r in captured)

    def test_a_draft_has_random_weights_of_its_seed(self) -> None:
        runtime = make_runtime(speculative=SpeculativeConfig())
        runner = _started(make_qwen(), Cpu(), runtime=runtime, seed=7)
        assert runner.draft is not None
        alone, other = (
            DraftModel(runner.model, runtime, runner.comm, runner.device.torch_device, seed=seed)
            for seed in (7, 8)
        )
        torch.testing.assert_close(runner.draft.mix, alone.mix, rtol=0, atol=0)
        assert not runner.draft.mix.equal(other.mix)
        weights = runner.draft.decoder.layers.state_dict()
        for name, weight in alone.decoder.layers.state_dict().items():
            torch.testing.assert_close(weights[name], weight, rtol=0, atol=0)

    def test_tables_are_the_targets(self) -> None:
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
        assert oom.where.startswith("forward/slots.py")
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
    runtime = make_runtime(
        dtype="bfloat16",
        moe_runner_backend="flashinfer_cutlass",
        prefill_tokens=8192,
        max_running_requests=None,
        decode_graphs=decode_graph_sizes(256),
        mem_fraction_static=0.85,
        context_length=40960,
        autotune_cached=True,
    )
    runner = _started(make_preset("Qwen3-30B-A3B"), Meta(150_109_880_320), runtime=runtime, kv_tokens=None)
    assert runner.plan.tokens == pytest.approx(REAL_TOKENS, rel=0.005)
    assert runner.plan.max_running_requests == 4096
    assert len(runner.runtime.graphs.prefill) == 58
    phases = {phase.name: phase for phase in runner.recorder.phases}
    for name, allocated in REAL.items():
        assert phases[name].allocated_bytes == pytest.approx(allocated, rel=0.005), name


def _serve_distributed(comm: Communicator, parallel: ParallelConfig) -> list[float]:
    """By how much graphs and eager forwards differ on this rank, and nothing where it has no logits."""
    options = StartOptions(kv_tokens=512)
    runner = ModelRunner(make_qwen(4), parallel, make_runtime(), Cpu(), lambda: comm, options=options)
    runner.start()
    lens = [5, 4, 6]
    requests, prefill = _prefill(runner, lens)
    decode = make_decode_batch([11, 12, 13], requests, runner.kv, lens)
    differences = []
    for rows, batch in ((sum(lens), prefill), (len(lens), decode)):
        peers = PeerRows([rows] * parallel.attn_dp, [len(lens)] * parallel.attn_dp, batch is prefill)
        batch = batch.with_dp(plan_dp_tokens(rows, "eager", parallel, peers=peers))
        by_graph, eagerly = runner.forward(batch), runner.forward_eager(batch)
        if isinstance(by_graph, LogitsOutput):
            differences.append((_logits(by_graph) - _logits(eagerly)).abs().max().item())
    return differences


@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(tp=2, pp=2), ParallelConfig(tp=4, dp=2, enable_dp_attention=True)],
    ids=["tp2 pp2", "tp4 dp2"],
)
def test_ranks_serve_by_graphs_together(ranks: Ranks, parallel: ParallelConfig) -> None:
    differences = ranks.run(parallel, _serve_distributed, parallel)
    assert len(differences[-1]) == 2
    assert max(max(of_rank, default=0) for of_rank in differences) < 1e-5


def _start_distributed(comm: Communicator, parallel: ParallelConfig) -> list[tuple[str, int, int, int]]:
    options = StartOptions(kv_tokens=512)
    runner = ModelRunner(make_qwen(4), parallel, make_runtime(), Cpu(), lambda: comm, options=options)
    runner.start()
    return sizes(runner.recorder.phases)


@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(tp=2), ParallelConfig(tp=2, pp=2), ParallelConfig(tp=4, dp=2, enable_dp_attention=True)],
    ids=["tp2", "tp2 pp2", "tp4 dp2"],
)
def test_a_virtual_rank_starts_as_a_real_one(ranks: Ranks, parallel: ParallelConfig) -> None:
    real = ranks.run(parallel, _start_distributed, parallel)
    for rank in (0, parallel.world_size - 1):
        virtual = make_runner(make_qwen(4), Cpu(), parallel, rank=rank)
        virtual.start()
        _assert_alike(sizes(virtual.recorder.phases), real[rank])
