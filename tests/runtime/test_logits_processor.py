"""The LM head: the rows it sees, its shards, and the mode in which autotuning leaves it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from runtime.forward.batch import ForwardMode, dummy_decode_batch, dummy_extend_batch
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.logits_processor import LogitsProcessor, autotune_dummy_run_mode, in_autotune_dummy_run
from runtime.layers.embedding import VocabTable
from runtime.server.config import ModelConfig, Vocabulary
from runtime.server.parallel import HeadOver, ParallelConfig
from tests.runtime.configs import model_of
from tests.runtime.ranks import Ranks

CPU = torch.device("cpu")
HIDDEN, VOCAB = 8, 100
ALONE = VirtualCommunicator(ParallelConfig())


def _make_model() -> ModelConfig:
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": VOCAB}
    return model_of({"model_type": "llama", "intermediate_size": 16, **sizes})


def _full() -> torch.Tensor:
    return torch.randn(128, HIDDEN, generator=torch.Generator().manual_seed(0))


def _make_processor(comm: Communicator, group: str = "tp", over: HeadOver = "all ranks") -> LogitsProcessor:
    head = VocabTable(_make_model(), comm, group, torch.float32, CPU)
    head.weight.copy_(_full()[: len(head.weight)] if not group else _full()[head.first : head.end])
    return LogitsProcessor(Vocabulary(VOCAB), comm, head, over=over)


def _hidden(rows: int) -> torch.Tensor:
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(rows))


def _want(hidden: torch.Tensor) -> torch.Tensor:
    return hidden @ _full()[:VOCAB].t()


@pytest.mark.parametrize(
    ("batch", "seen"),
    [
        (dummy_extend_batch(7, 4, CPU), [3, 6]),
        (replace(dummy_decode_batch(2, 3, CPU), mode=ForwardMode.DRAFT_EXTEND), [2, 5]),
        (dummy_decode_batch(3, 1, CPU), [0, 1, 2]),
        (dummy_decode_batch(2, 2, CPU), [0, 1, 2, 3]),
    ],
    ids=["extend", "draft extend", "decode", "verify"],
)
def test_an_extend_is_pruned_to_each_requests_last_token(batch: Any, seen: list[int]) -> None:
    hidden = _hidden(batch.num_tokens)
    output = _make_processor(ALONE).forward(hidden, batch)
    assert output.next_token_logits is not None
    torch.testing.assert_close(output.next_token_logits, _want(hidden[seen]))


def test_a_speculative_target_hands_out_its_hidden_states() -> None:
    processor, hidden = _make_processor(ALONE), _hidden(2)
    processor.keep_hidden_states = True
    assert processor.forward(hidden, dummy_decode_batch(2, 1, CPU)).hidden_states is hidden


def _sharded_logits(comm: Communicator, groups: int, group: str, over: HeadOver) -> Any:
    own = _hidden(4 * groups)[4 * comm.rank("attn_dp") :][:4]
    output = _make_processor(comm, group, over).forward(own, dummy_decode_batch(4, 1, CPU))
    assert output.next_token_logits is not None
    return output.next_token_logits.numpy()


@pytest.mark.parametrize(
    ("dp", "group", "over"),
    [
        (2, "tp", "all ranks"),
        (2, "attn_tp", "a group"),
        (4, "attn_tp", "a group"),
        (2, "attn_tp", "all ranks"),  # tied to an embedding that every group has
        (2, "", "all ranks"),
    ],
)
def test_whoever_shares_the_head_its_logits_are_the_same(
    ranks: Ranks, dp: int, group: str, over: HeadOver
) -> None:
    parallel = ParallelConfig(tp=4, dp=dp, enable_dp_attention=True)
    answers = ranks.run(parallel, _sharded_logits, dp, group, over)
    got = torch.cat([torch.from_numpy(answers[rank]) for rank in range(0, 4, 4 // dp)])
    torch.testing.assert_close(got, _want(_hidden(4 * dp)))


def test_modes_nest_and_an_error_ends_the_inner_one_alone() -> None:
    def runs_head() -> bool:
        output = _make_processor(ALONE).forward(_hidden(2), dummy_decode_batch(2, 1, CPU))
        return output.next_token_logits is not None

    with autotune_dummy_run_mode():
        with autotune_dummy_run_mode(run_lm_head=True):
            assert runs_head() and in_autotune_dummy_run()
            with pytest.raises(ValueError, match="inner"), autotune_dummy_run_mode():
                assert not runs_head()
                raise ValueError("inner")
            assert runs_head()
        assert not runs_head()
    assert runs_head() and not in_autotune_dummy_run()
