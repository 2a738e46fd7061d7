"""The LM head's three paths, its shards, and the promises of the autotune dummy-run mode."""

import threading
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from runtime.forward.batch import (
    ForwardBatch,
    ForwardMode,
    LogitsMode,
    dummy_decode_batch,
    dummy_extend_batch,
)
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.forward.logits_processor import (
    DummyRunLeak,
    LogitsOutput,
    LogitsProcessor,
    autotune_dummy_run_mode,
    in_autotune_dummy_run,
    logits_wanted,
)
from runtime.layers.embedding import VocabTable
from runtime.server.config import ModelConfig, Vocabulary
from runtime.server.parallel import HeadOver, ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.configs import model_of
from tests.runtime.ranks import Ranks

CPU = torch.device("cpu")
HIDDEN, VOCAB = 8, 100


def _make_model(**changes: Any) -> ModelConfig:
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": VOCAB}
    return model_of({"model_type": "llama", "intermediate_size": 16, **sizes, **changes})


def _make_processor(comm: Communicator, group: str = "tp", over: HeadOver = "all ranks") -> LogitsProcessor:
    head = VocabTable("lm_head", _make_model(), comm, group, torch.float32, CPU)
    full = torch.randn(128, HIDDEN, generator=torch.Generator().manual_seed(0))
    head.weight.copy_(full[head.rows])
    return LogitsProcessor(Vocabulary(VOCAB), comm, head, over=over)


def _make_pool() -> KVPool:
    return make_kv_pool(PoolPlan(128, 1, "float32", 8, 16), _make_model(), ParallelConfig(), (0,), CPU)


def _hidden(rows: int) -> torch.Tensor:
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(rows))


def _want(hidden: torch.Tensor) -> torch.Tensor:
    full = torch.randn(128, HIDDEN, generator=torch.Generator().manual_seed(0))
    return hidden @ full[:VOCAB].t()


ALONE = VirtualCommunicator(ParallelConfig())


def _make_scoring_batch() -> ForwardBatch:
    batch = make_extend_batch([[1] * 9], [1], _make_pool(), logits_mode=LogitsMode.INDICES)
    return replace(batch, logits_indices=torch.tensor([2, 5]))


def _make_diffusion_batch() -> ForwardBatch:
    return make_extend_batch([[1] * 9], [1], _make_pool(), logits_mode=LogitsMode.ALL)


@pytest.mark.parametrize(
    ("batch", "field", "rows"),
    [
        (make_extend_batch([[1] * 3, [2] * 4], [1, 2], _make_pool()), "next_token_logits", [2, 6]),
        (make_decode_batch([1, 2, 3], [1, 2, 3], _make_pool(), [4, 5, 6]), "next_token_logits", [0, 1, 2]),
        (_make_scoring_batch(), "item_logprobs", [2, 5]),
        (_make_diffusion_batch(), "full_logits", list(range(9))),
    ],
    ids=["an extend: of each request's last token", "a decode", "multi-item scoring", "a diffusion LLM"],
)
def test_the_head_answers_in_one_field(batch: ForwardBatch, field: str, rows: list[int]) -> None:
    hidden = _hidden(batch.num_tokens)
    output = asdict(_make_processor(ALONE).forward(hidden, batch))
    want = _want(hidden[rows])
    torch.testing.assert_close(output.pop(field), want.log_softmax(-1) if field == "item_logprobs" else want)
    assert set(output.values()) == {None}


def test_a_speculative_target_hands_out_its_hidden_states() -> None:
    processor = _make_processor(ALONE)
    processor.keep_hidden_states = True
    hidden = _hidden(2)
    batch = dummy_decode_batch(2, 1, CPU)
    assert processor.forward(hidden, batch).hidden_states is hidden


def _sharded_logits(
    comm: Communicator,
    counts: list[int],
    parallel: ParallelConfig,
    group: str = "tp",
    over: HeadOver = "all ranks",
) -> Any:
    rank = comm.rank("attn_dp")
    rows = counts[rank]
    batch = dummy_decode_batch(rows, 1, CPU)
    dp = plan_dp_tokens(rows, "eager", parallel, peers=PeerRows(counts, counts), dp_rank=rank)
    own = _hidden(sum(counts))[sum(counts[:rank]) :][:rows]
    output = _make_processor(comm, group, over).forward(own, batch.with_dp(dp))
    assert output.next_token_logits is not None
    return output.next_token_logits.numpy()


@pytest.mark.parametrize("counts", [[4, 5], [9, 0]])
def test_the_vocabulary_is_gathered_and_each_rank_keeps_its_rows(ranks: Ranks, counts: list[int]) -> None:
    parallel = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
    answers = ranks.run(parallel, _sharded_logits, counts, parallel)
    got = torch.cat([torch.from_numpy(answers[0]), torch.from_numpy(answers[2])])
    torch.testing.assert_close(got, _want(_hidden(9)))


@pytest.mark.parametrize(
    ("dp", "group", "over", "counts"),
    [
        (2, "attn_tp", "a group", [4, 5]),
        (2, "attn_tp", "a group", [4, 0]),
        (4, "attn_tp", "a group", [4, 5, 0, 1]),
        (2, "attn_tp", "all ranks", [4, 5]),  # tied to an embedding that every group has
        (2, "", "all ranks", [4, 5]),
    ],
)
def test_whoever_shares_the_head_its_logits_are_the_same(
    ranks: Ranks, dp: int, group: str, over: HeadOver, counts: list[int]
) -> None:
    parallel = ParallelConfig(tp=4, dp=dp, enable_dp_attention=True)
    answers = ranks.run(parallel, _sharded_logits, counts, parallel, group, over)
    got = torch.cat([torch.from_numpy(answers[rank]) for rank in range(0, 4, 4 // dp)])
    torch.testing.assert_close(got, _want(_hidden(sum(counts))))


# -- the dummy-run mode -------------------------------------------------------------------------------------


PATHS = {
    "multi-item scoring": _make_scoring_batch,
    "diffusion": _make_diffusion_batch,
    "common": lambda: dummy_decode_batch(9, 1, CPU),
}


class _UntouchedHead(LogitsProcessor):
    """Fails when any path is entered."""

    def _score_items(self, hidden: torch.Tensor, batch: ForwardBatch) -> LogitsOutput:
        raise AssertionError("the scoring path was entered")

    def _logits(self, rows: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        raise AssertionError("the head was run")


@pytest.mark.parametrize("path", PATHS)
def test_the_mode_returns_before_each_path(path: str) -> None:
    processor = _make_processor(ALONE)
    untouched = _UntouchedHead(VOCAB, ALONE, processor.head)
    batch = replace(PATHS[path](), dummy=True)
    with autotune_dummy_run_mode():
        output = untouched.forward(_hidden(9), batch)
    assert (output.next_token_logits, output.full_logits, output.item_logprobs) == (None, None, None)
    with pytest.raises(AssertionError, match="was"):
        untouched.forward(_hidden(9), batch)


@pytest.mark.parametrize("path", PATHS)
def test_the_mode_can_run_the_head(path: str) -> None:
    batch = replace(PATHS[path](), dummy=True)
    with autotune_dummy_run_mode(run_lm_head=True):
        output = _make_processor(ALONE).forward(_hidden(9), batch)
        assert in_autotune_dummy_run()
    logits = (output.next_token_logits, output.full_logits, output.item_logprobs)
    assert sum(value is not None for value in logits) == 1


def test_an_exception_restores_the_head() -> None:
    with pytest.raises(torch.OutOfMemoryError), autotune_dummy_run_mode():
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert not in_autotune_dummy_run()
    output = _make_processor(ALONE).forward(_hidden(2), dummy_decode_batch(2, 1, CPU))
    assert output.next_token_logits is not None


def test_modes_nest_and_the_inner_one_ends_alone() -> None:
    processor, batch = _make_processor(ALONE), dummy_decode_batch(2, 1, CPU)

    def runs_head() -> bool:
        return processor.forward(_hidden(2), batch).next_token_logits is not None

    with autotune_dummy_run_mode():
        with autotune_dummy_run_mode(run_lm_head=True):
            assert runs_head()
            with pytest.raises(ValueError, match="inner"), autotune_dummy_run_mode():
                assert not runs_head()
                raise ValueError("inner")
            assert runs_head()
        assert not runs_head()
    assert runs_head()


@pytest.mark.parametrize("run_lm_head", [False, True])
def test_a_real_forward_inside_the_mode_is_an_error(run_lm_head: bool) -> None:
    batch = make_decode_batch([1], [1], _make_pool(), [3])
    said = "a forward of real requests inside autotune_dummy_run_mode"
    with autotune_dummy_run_mode(run_lm_head), pytest.raises(DummyRunLeak, match=said):
        _make_processor(ALONE).forward(_hidden(1), batch)


@pytest.mark.parametrize("what", ["graph capture", "profiling"])
def test_capture_and_profiling_cannot_start_inside_the_mode(what: str) -> None:
    with autotune_dummy_run_mode(), pytest.raises(DummyRunLeak, match=what), logits_wanted(what):
        raise AssertionError("entered")


@pytest.mark.parametrize("what", ["graph capture", "profiling"])
def test_the_mode_cannot_start_inside_capture_or_profiling(what: str) -> None:
    with logits_wanted(what):
        with pytest.raises(DummyRunLeak, match=f"cannot start inside {what}"), autotune_dummy_run_mode():
            raise AssertionError("entered")
        output = _make_processor(ALONE).forward(_hidden(2), dummy_decode_batch(2, 1, CPU))
        assert output.next_token_logits is not None
    with autotune_dummy_run_mode():
        assert in_autotune_dummy_run()


def test_another_thread_keeps_its_head() -> None:
    seen: list[bool] = []
    with autotune_dummy_run_mode():
        thread = threading.Thread(target=lambda: seen.append(in_autotune_dummy_run()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_dummy_prefill_is_a_dummy() -> None:
    batch = dummy_extend_batch(8, 8, CPU)
    assert batch.mode is ForwardMode.EXTEND
    with autotune_dummy_run_mode():
        assert _make_processor(ALONE).forward(_hidden(8), batch).next_token_logits is None
