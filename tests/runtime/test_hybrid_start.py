"""Layers with states through a start: graphs, prefixes, slots that were others', and what is predicted."""

import pytest
import torch

from runtime.devices.cpu import Cpu
from runtime.forward.batch import dummy_decode_batch
from runtime.forward.kv_pool import PADDING_REQUEST
from runtime.layers.recurrence import Rows, reference
from runtime.server.config import SpeculativeConfig
from runtime.server.errors import Unsupported
from runtime.start.model_runner import ModelRunner
from tests.runtime.hybrids import NAMES, RaggedRows, generated, start_hybrid


@pytest.fixture(scope="module", params=NAMES)
def runner(request: pytest.FixtureRequest) -> ModelRunner:
    return start_hybrid(request.param, Cpu())


def test_graphs_answer_as_eager_forwards_do(runner: ModelRunner) -> None:
    assert runner.plan.states is not None
    assert runner.recorder.run().about["states"] == runner.plan.states.slots
    eager = list(generated(runner, (13, 1, 20), 3, eagerly=True))
    replayed = list(generated(runner, (13, 1, 20), 3, eagerly=False))
    for got, want in zip(replayed, eager, strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_a_new_request_begins_without_what_its_slot_held(runner: ModelRunner) -> None:
    [first, *_] = generated(runner, (9,), 1, eagerly=True)
    list(generated(runner, (17,), 2, eagerly=True))
    [again, *_] = generated(runner, (9,), 1, eagerly=True)
    torch.testing.assert_close(again, first, atol=0, rtol=0)


def test_padding_writes_no_state_but_its_own(runner: ModelRunner) -> None:
    assert runner.kv.states is not None
    layer = next(i for i in range(runner.model.num_layers) if runner.model.is_recurrent(i))
    state = runner.kv.states.layer(layer).recurrent
    state.zero_()
    list(generated(runner, (5, 6, 7), 2, eagerly=False))  # a graph of four requests
    used = {slot for slot in range(state.shape[0]) if state[slot].any()}
    assert len(used - {PADDING_REQUEST}) == 3


_DRAFTS = SpeculativeConfig(num_steps=2, num_draft_tokens=2)


def test_a_draft_beside_states_is_an_attention_layer_and_a_verify_leaves_them() -> None:
    runner = start_hybrid("qwen3_next", Cpu(), speculative=_DRAFTS, decode_graphs=(1,), prefill_graphs=())
    states, plan = runner.kv.states, runner.plan.states
    assert states is not None and plan is not None and runner.draft_runners is not None
    assert (plan.drafts, plan.draft_tokens) == (runner.plan.max_running_requests, 2)
    assert runner.draft is not None and all(map(runner.model.keeps_tokens, runner.draft.layer_ids))
    held = states.layer(0).recurrent.fill_(0.5)
    runner.forward(runner.dp_batch(dummy_decode_batch(1, 2, torch.device("cpu"))))
    assert bool((held == 0.5).all())


def test_drafts_of_layers_of_one_thing_each_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="nemotron_h with drafts"):
        start_hybrid("nemotron_h", Cpu(), speculative=_DRAFTS, decode_graphs=(), prefill_graphs=())


@pytest.mark.parametrize("is_delta", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_chunks_are_the_same_as_token_after_token(seed: int, is_delta: bool) -> None:
    rows = RaggedRows.random(seed)
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(rows.total, 2, 8, generator=generator) for _ in range(2))
    v, step, strength = (torch.randn(rows.total, 4, *tail, generator=generator) for tail in ((6,), (), ()))
    rate, bias = (torch.randn(4, generator=generator) for _ in range(2))
    gates = reference.Gates.of(step, strength if is_delta else None, rate, bias, 0.0)
    told = rows.on(torch.device("cpu"))
    state = torch.randn(16, 4, 6, 8, generator=generator)
    one_by_one, got, want = state.clone(), torch.zeros(v.shape), torch.zeros(v.shape)
    reference.recur(q, k, v, gates, None, state, got, told)
    for slot, own, goes_on in told:
        for at in range(own.start, own.stop):
            seen = torch.tensor([2 if goes_on or at > own.start else 1])
            single = Rows(torch.tensor([slot]), seen, torch.tensor([0, 1]), 1, True)
            of_one = reference.Gates(gates.decay[at : at + 1], gates.written[at : at + 1], is_delta)
            answer = torch.zeros(1, *v.shape[1:])
            part = slice(at, at + 1)
            reference.recur(q[part], k[part], v[part], of_one, None, one_by_one, answer, single)
            want[part] = answer
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(state, one_by_one, atol=2e-5, rtol=1e-4)
