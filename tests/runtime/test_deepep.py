"""What a layer allocates behind DeepEP, and where it must not: sizes by hand, on tensors without memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from runtime.devices.meta import Meta
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.dp_attention import PeerRows, RunnerKind, plan_dp_tokens
from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.moe.backends import make_backend
from runtime.moe.deep_gemm import DeepGemmBackend, compact_rows, masked_rows
from runtime.moe.deepep import aligned_rows, share_of_rows
from runtime.moe.dispatcher import make_dispatcher
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.deepep import DeepEP
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import rank_layout
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.starts import make_qwen

HIDDEN, INNER, EXPERTS, TOP_K, RANKS = 256, 128, 32, 4, 8
PARALLEL = ParallelConfig(tp=RANKS, dp=RANKS, ep=RANKS, enable_dp_attention=True)
LOCAL = EXPERTS // RANKS
META = torch.device("meta")


def _model(quantization: str | None = "fp8") -> ModelConfig:
    moe = MoEConfig(num_experts=EXPERTS, top_k=TOP_K, intermediate_size=INNER)
    block = (128, 128) if quantization else None
    return replace(
        make_qwen(),
        hidden_size=HIDDEN,
        moe=moe,
        checkpoint_quantization=quantization,
        quantization_block=block,
    )


def _runtime(**changed: object) -> RuntimeConfig:
    runtime = RuntimeConfig(moe_runner_backend="deep_gemm", moe_a2a_backend="deepep", deepep=DeepEP())
    return replace(runtime, **changed)  # type: ignore[arg-type]


def _weights(dtype: torch.dtype = torch.float8_e4m3fn, local: int = LOCAL) -> ExpertWeights:
    up = torch.empty(local, 2 * INNER, HIDDEN, dtype=dtype, device=META)
    return ExpertWeights(up, torch.empty(local, HIDDEN, INNER, dtype=dtype, device=META), EXPERTS)


def _route(x: torch.Tensor) -> TopK:
    ids = torch.empty(x.shape[0], TOP_K, dtype=torch.int32, device=META)
    weights = torch.empty(x.shape[0], TOP_K, device=META)
    return TopK(ids, weights, torch.empty(x.shape[0], EXPERTS, device=META))


def _made(
    rows: int,
    kind: RunnerKind,
    runtime: RuntimeConfig | None = None,
    quantization: str | None = "fp8",
    is_extend: bool = False,
) -> list[tuple[int, ...]]:
    """The shapes of two and more dimensions that a dispatch, the experts and a combine make, in order."""
    runtime, model = runtime or _runtime(), _model(quantization)
    device = Meta(1 << 40, fold=False, log=True)
    comm = VirtualCommunicator(PARALLEL)
    dispatcher = make_dispatcher(model, runtime, comm, torch.bfloat16, META)
    backend = make_backend("deep_gemm", model, runtime, rank_layout(PARALLEL, 0), META)
    weights = _weights(torch.float8_e4m3fn if quantization else torch.bfloat16)
    x = torch.empty(rows, HIDDEN, dtype=torch.bfloat16, device=META)
    dp = plan_dp_tokens(rows, kind, PARALLEL, moe_a2a_backend="deepep", is_extend=is_extend)
    with device.active(), torch.inference_mode():
        dp.publish()
        received, topk = dispatcher.dispatch(x, _route)
        answer = dispatcher.combine(backend.forward(received, topk, weights), rows)
    assert answer.shape == (rows, HIDDEN)
    assert device.tracker.log is not None
    return [entry.shape for entry in device.tracker.log if len(entry.shape) > 1 and HIDDEN in entry.shape]


def test_low_latency_has_room_for_every_rank_at_every_expert() -> None:
    room = RANKS * 128
    rows = (LOCAL, room, HIDDEN)
    assert _made(16, "decode_graph") == [rows, (LOCAL, room, 2 * INNER), rows, (16, HIDDEN)]


def test_its_room_is_what_the_server_asked_for() -> None:
    runtime = _runtime(deepep=DeepEP(tokens=32))
    assert _made(16, "decode_graph", runtime)[0] == (LOCAL, RANKS * 32, HIDDEN)
    with pytest.raises(
        WorkspaceOverflow, match=r"33 tokens a rank .* made for 32: raise SGLANG_DEEPEP_NUM_MAX_\w+, or lower"
    ):
        _made(33, "decode_graph", runtime)


def test_the_normal_mode_takes_a_row_once_a_rank_and_copies_it_to_its_experts() -> None:
    rows = 1024
    came = round(rows * RANKS * share_of_rows(_moe(), LOCAL))
    copies = rows * TOP_K
    assert came < copies == aligned_rows(copies, LOCAL)
    assert _made(rows, "eager", is_extend=True) == [
        *((rows, HIDDEN), (came, HIDDEN)),
        *((copies, HIDDEN), (copies, 2 * INNER), (copies, HIDDEN), (came, HIDDEN), (rows, HIDDEN)),
    ]


def test_bf16_experts_get_their_rows_as_they_are() -> None:
    rows = 1024
    made = _made(rows, "eager", quantization=None, is_extend=True)
    assert made[0] == (round(rows * RANKS * share_of_rows(_moe(), LOCAL)), HIDDEN), "nothing is quantised"


@pytest.mark.parametrize(
    ("kind", "is_extend", "mode", "normal"),
    [
        *(("decode_graph", False, "auto", False), ("eager", True, "auto", True)),
        *(("prefill_graph", False, "auto", True), ("decode_graph", False, "normal", True)),
        ("eager", True, "low_latency", False),
    ],
)
def test_the_mode_follows_what_all_ranks_do(
    kind: RunnerKind, is_extend: bool, mode: str, normal: bool
) -> None:
    made = _made(8, kind, _runtime(deepep=DeepEP(mode)), is_extend=is_extend)
    assert (len(made[0]) == 2) == normal


def test_a_peer_that_prefills_decides_for_all() -> None:
    for extends in (True, False):
        peers = PeerRows([8] * RANKS, [8] * RANKS, extends)
        assert plan_dp_tokens(8, "eager", PARALLEL, peers=peers, is_extend=not extends).is_extend == extends


def _moe() -> MoEConfig:
    moe = _model().moe
    assert moe is not None
    return moe


class TestRows:
    def test_a_row_goes_to_the_ranks_that_hold_its_experts(self) -> None:
        moe = MoEConfig(num_experts=256, top_k=8, intermediate_size=1)
        assert share_of_rows(moe, 32) == pytest.approx(1 - (7 / 8) ** 8, rel=0.02)
        assert share_of_rows(moe, 256) == 1

    def test_groups_keep_a_row_from_most_ranks(self) -> None:
        """DeepSeek-V3's experts of a token are in four of eight groups: at most four of eight ranks."""
        moe = MoEConfig(num_experts=256, top_k=8, intermediate_size=1, num_groups=8, top_k_groups=4)
        assert 3.5 < 8 * share_of_rows(moe, 32) < 4
        assert 2.9 < 4 * share_of_rows(moe, 64) < 3.5 < 4 * share_of_rows(replace(moe, num_groups=1), 64)
        assert share_of_rows(moe, 256) == 1

    def test_experts_rows_are_whole_blocks(self) -> None:
        assert aligned_rows(0, 32) == 0
        assert aligned_rows(5, 32) == 5 * 128
        assert aligned_rows(32 * 129, 32) == 32 * 256
        assert [masked_rows(tokens) for tokens in (1, 255, 256)] == [256, 256, 512]
        assert compact_rows(8, 32) == 8 * 128 and compact_rows(32 + 256, 32) == 34 * 128


class TestWithoutAnAllToAll:
    def _peak(self, release: str, tokens: int, local: int, ep: int, free: int = 0) -> list[tuple[int, ...]]:
        parallel = ParallelConfig(tp=ep, ep=ep)
        runtime = _runtime(moe_a2a_backend="none", deepep=None, sglang_version=release)
        backend = make_backend("deep_gemm", _model(), runtime, rank_layout(parallel, 0), META)
        assert isinstance(backend, DeepGemmBackend)
        backend.tell_free(free)
        device = Meta(1 << 40, fold=False, log=True)
        x = torch.empty(tokens, HIDDEN, dtype=torch.bfloat16, device=META)
        topk = _route(x)
        with device.active(), torch.inference_mode():
            plan_dp_tokens(tokens, "eager", parallel).publish()
            assert backend.forward(x, topk, _weights(local=local)).shape == x.shape
        assert device.tracker.log is not None
        return [entry.shape for entry in device.tracker.log]

    def test_every_expert_had_room_for_all_rows(self) -> None:
        assert (4, 512, 2 * INNER) in self._peak("0.5.16", 256, local=4, ep=1)

    def test_0_5_17_counted_experts(self) -> None:
        assert (4, 512, 2 * INNER) in self._peak("0.5.17", 256, local=4, ep=8)
        assert (compact_rows(256 * TOP_K, 4), 2 * INNER) in self._peak("0.5.17", 256, local=4, ep=1)
        assert (compact_rows(256 * TOP_K, 33), 2 * INNER) in self._peak("0.5.17", 256, local=33, ep=8)

    @pytest.mark.parametrize("release", ["0.5.18", "0.5.23"])
    def test_since_then_a_quarter_of_what_is_free_decides(self, release: str) -> None:
        row = HIDDEN + INNER + 4 * (2 + 1) + 2 * max(2 * INNER, HIDDEN)
        wanted = 4 * 512 * row
        assert (4, 512, 2 * INNER) in self._peak(release, 256, local=4, ep=1, free=4 * wanted)
        compact = self._peak(release, 256, local=4, ep=1, free=4 * wanted - 1)
        assert (compact_rows(256 * TOP_K, 4), 2 * INNER) in compact


def _peak_of_masked(release: str, kind: RunnerKind) -> int:
    runtime = _runtime(sglang_version=release)
    device = Meta(1 << 40, fold=False)
    backend = make_backend("deep_gemm", _model(), runtime, rank_layout(PARALLEL, 0), META)
    comm = VirtualCommunicator(PARALLEL)
    dispatcher = make_dispatcher(_model(), runtime, comm, torch.bfloat16, META)
    x = torch.empty(16, HIDDEN, dtype=torch.bfloat16, device=META)
    with device.active(), torch.inference_mode():
        plan_dp_tokens(16, kind, PARALLEL, moe_a2a_backend="deepep").publish()
        received, topk = dispatcher.dispatch(x, _route)
        backend.forward(received, topk, _weights())
    return device.memory().peak_allocated


@pytest.mark.parametrize("release", ["0.5.14", "0.5.15", "0.5.23"])
def test_what_is_read_is_given_up_where_it_may_be(release: str) -> None:
    """The rows that came live on beside the experts' answers in a graph alone, and not in every release's."""
    eager, graph = (_peak_of_masked(release, kind) for kind in ("eager", "decode_graph"))
    assert (graph > eager) == (release != "0.5.14")


@pytest.mark.parametrize(
    ("kind", "mode", "breaks"),
    [
        *(("prefill_graph", "auto", True), ("prefill_graph", "low_latency", False)),
        *(("decode_graph", "auto", False), ("eager", "normal", False)),
    ],
)
def test_the_normal_mode_runs_between_the_parts_of_a_graph(kind: RunnerKind, mode: str, breaks: bool) -> None:
    comm, runtime = VirtualCommunicator(PARALLEL), _runtime(deepep=DeepEP(mode))
    dispatcher = make_dispatcher(_model(), runtime, comm, torch.bfloat16, META)
    plan_dp_tokens(64, kind, PARALLEL, moe_a2a_backend="deepep").publish()
    assert dispatcher.breaks_graphs == breaks


def test_neither_runs_on_a_device() -> None:
    cpu, comm = torch.device("cpu"), VirtualCommunicator(PARALLEL)
    with pytest.raises(ConfigError, match="--moe-a2a-backend deepep"):
        make_dispatcher(_model(), _runtime(), comm, torch.bfloat16, cpu)
    with pytest.raises(ConfigError, match="--moe-runner-backend deep_gemm: this runtime has auto, triton"):
        make_backend("deep_gemm", _model(), _runtime(), rank_layout(PARALLEL, 0), cpu)
