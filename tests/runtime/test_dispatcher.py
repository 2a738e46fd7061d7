"""Workspace sizes, their check, and tokens through the all-to-all on real processes."""

from typing import Any

import pytest
import torch

from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.moe.a2a_workspace import A2AWorkspace, WorkspaceOverflow, max_dispatch_tokens
from runtime.moe.dispatcher import AllToAllDispatcher, StandardDispatcher, make_dispatcher
from runtime.moe.weights import TopK
from runtime.server.config import ModelConfig, SpeculativeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig
from tests.runtime.configs import model_of, runtime_config
from tests.runtime.ranks import Ranks

CPU = torch.device("cpu")
HIDDEN, TOP_K = 16, 2
DRAFTS = SpeculativeConfig("EAGLE", num_draft_tokens=4)


def _make_model() -> ModelConfig:
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
    experts = {"num_experts": 8, "num_experts_per_tok": TOP_K, "moe_intermediate_size": 32}
    return model_of({"model_type": "qwen3_moe", **sizes, **experts})


def _make_dispatcher(parallel: ParallelConfig, rank: int = 0, **flags: Any) -> Any:
    runtime = runtime_config(dtype="float32", moe_a2a_backend="flashinfer", **flags)
    comm = VirtualCommunicator(parallel, rank)
    return make_dispatcher(_make_model(), runtime, comm, torch.float32, CPU)


EP4 = ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True)


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        ({"prefill_tokens": 8192, "max_running_requests": 256}, 8192),
        ({"prefill_tokens": 1024, "max_running_requests": 2048}, 2048),
        ({"prefill_tokens": 1024}, 4096),
        ({"prefill_tokens": 64, "max_running_requests": 48, "speculative": DRAFTS}, 192),
    ],
)
def test_a_prefill_chunk_or_a_full_decode_batch_fits(flags: dict[str, Any], tokens: int) -> None:
    assert max_dispatch_tokens(runtime_config(**flags)) == tokens


def test_workspace_bytes_follow_the_formula() -> None:
    """GLM on eight ranks: rows with eight (id, weight) pairs, result rows, and FlashInfer's tables."""
    workspace = A2AWorkspace(ep_size=8, max_tokens=8192, hidden_size=6144, top_k=8)
    dispatch, combine = 8 * 8192 * (2 * 6144 + 64), 8 * 8192 * 2 * 6144
    tables = 128 + 128 + 128 + 2 * 8192 * 22 * 4
    assert (workspace.dispatch_bytes, workspace.combine_bytes) == (dispatch, combine)
    assert workspace.total_bytes == tables + dispatch + combine


def test_the_workspace_is_made_once_and_to_size() -> None:
    dispatcher = _make_dispatcher(EP4, prefill_tokens=64, max_running_requests=16)
    assert isinstance(dispatcher, AllToAllDispatcher)
    assert dispatcher.memory.numel() == A2AWorkspace(4, 64, HIDDEN, TOP_K, 4).total_bytes
    before = dispatcher.memory.data_ptr()
    _dispatch_rows(dispatcher, 8, EP4)
    assert dispatcher.memory.data_ptr() == before


def _dispatch_rows(dispatcher: AllToAllDispatcher, rows: int, parallel: ParallelConfig) -> None:
    plan_dp_tokens(rows, "decode_graph", parallel, moe_a2a_backend="flashinfer").publish()
    dispatcher.dispatch(torch.zeros(rows, HIDDEN), _route)


def test_a_chunk_longer_than_the_workspace_is_told_before_it_is_written() -> None:
    dispatcher = _make_dispatcher(EP4, prefill_tokens=16, max_running_requests=4)
    dispatcher.memory.fill_(7)
    said = r"17 tokens a rank .* made for 16: raise SGLANG_FLASHINFER_\w+ if it is set, else --chunked"
    with pytest.raises(WorkspaceOverflow, match=said):
        _dispatch_rows(dispatcher, 17, EP4)
    assert (dispatcher.memory == 7).all()
    _dispatch_rows(dispatcher, 16, EP4)


def test_experts_must_be_whole() -> None:
    with pytest.raises(ConfigError, match=r"pass --ep 4, equal to --tp"):
        _make_dispatcher(ParallelConfig(tp=4, ep=2))


def test_unknown_backends_are_refused() -> None:
    comm = VirtualCommunicator(EP4)
    with pytest.raises(ConfigError, match=r"--moe-a2a-backend deepep"):
        make_dispatcher(_make_model(), runtime_config(moe_a2a_backend="deepep"), comm, torch.float32, CPU)
    made = make_dispatcher(_make_model(), runtime_config(), comm, torch.float32, CPU)
    assert isinstance(made, StandardDispatcher)


def _route(x: torch.Tensor) -> TopK:
    """A row's first value names its expert; its second slot goes nowhere."""
    expert = x[:, 0].to(torch.int32)
    ids = torch.stack((expert, torch.full_like(expert, -1)), dim=1)
    weights = torch.ones(x.shape[0], TOP_K)
    return TopK(ids, weights, torch.zeros(x.shape[0], 8))


def _exchange(comm: Communicator, parallel: ParallelConfig, counts: list[int]) -> tuple[list[float], int]:
    """Every rank multiplies the rows of its two experts by ten; others contribute zeros."""
    runtime = runtime_config(dtype="float32", moe_a2a_backend="flashinfer", prefill_tokens=16)
    dispatcher = make_dispatcher(_make_model(), runtime, comm, torch.float32, CPU)
    rank, rows = comm.rank("attn_dp"), counts[comm.rank("attn_dp")]
    peers = PeerRows(counts, counts)
    plan_dp_tokens(rows, "eager", parallel, moe_a2a_backend="flashinfer", peers=peers, dp_rank=rank).publish()
    x = (torch.arange(rows).float() + 3 * rank).remainder(8)[:, None].expand(-1, HIDDEN).contiguous()
    received, topk = dispatcher.dispatch(x, _route)
    mine = (topk.ids[:, :1] // 2 == comm.rank("moe_ep")) & (topk.ids[:, :1] < 8)
    back = dispatcher.combine(torch.where(mine, received * 10, 0.0), rows)
    return (back / 10 - x).abs().flatten().tolist(), int(mine.sum())


@pytest.mark.parametrize(
    ("parallel", "counts"),
    [
        (EP4, [3, 3, 3, 3]),
        (EP4, [5, 0, 2, 1]),
        (ParallelConfig(tp=4, dp=2, ep=4, enable_dp_attention=True), [5, 3]),
        (ParallelConfig(tp=4, ep=4), [7]),
    ],
)
def test_rows_meet_experts_once_and_return(ranks: Ranks, parallel: ParallelConfig, counts: list[int]) -> None:
    answers = ranks.run(parallel, _exchange, parallel, counts)
    assert all(difference == 0 for differences, _ in answers for difference in differences)
    assert sum(handled for _, handled in answers) == sum(counts), "padding reaches nobody"
