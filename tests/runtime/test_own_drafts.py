"""Drafts that are models of their own: what they are given, what they compute, and which graphs they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from runtime.devices.base import Device
from runtime.devices.cpu import Cpu
from runtime.models.own_draft import OwnDraftModel
from runtime.server.decoders.known import model_config
from runtime.server.graphs import decode_graph_sizes
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.speculative_config import SpeculativeConfig
from runtime.start.model_runner import ModelRunner
from tests.runtime.starts import make_meta, make_qwen, make_runner, make_runtime

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "vocab_size": 320,
    "draft_vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
}
EAGLES = {name: value for name, value in CONFIG.items() if name != "draft_vocab_size"}
EAGLES |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 2}
WHOLE = {**CONFIG, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}
del WHOLE["draft_vocab_size"]
DP2 = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)


def _runner(
    config: dict[str, Any] = CONFIG,
    captures: Sequence[int] = (0, 1, 2),
    device: Device | None = None,
    parallel: ParallelConfig = ParallelConfig(),
    of: ParallelConfig = ParallelConfig(),
) -> ModelRunner:
    eagle = "EAGLE" if config is EAGLES else "STANDALONE"
    algorithm = "EAGLE3" if captures else eagle
    sizes = decode_graph_sizes(8, speculative=True)
    speculative = SpeculativeConfig(algorithm)
    runtime = make_runtime(speculative=speculative, kv_cache_dtype="float32", decode_graphs=sizes)
    model = model_config(config)
    drafting = replace(runtime, attention_backend="triton")
    own = OwnDraft(model, drafting, parallel, tuple(captures), model.num_layers)
    runner = make_runner(make_qwen(), device or Cpu(), of, runtime, own_draft=own)
    runner.start()
    return runner


def _draft(runner: ModelRunner) -> OwnDraftModel:
    [draft] = runner.drafts
    assert isinstance(draft, OwnDraftModel)
    return draft


@pytest.mark.parametrize("device", [Cpu, make_meta])
@pytest.mark.parametrize(("config", "captures"), [(CONFIG, (0, 1, 2)), (WHOLE, ()), (EAGLES, ())])
def test_their_prefills_their_steps_and_their_catching_up_are_captured(
    device: Any, config: dict[str, Any], captures: Sequence[int]
) -> None:
    runners = _runner(config, captures, device()).draft_runners
    assert runners is not None and runners.steps is not None and runners.prefills is not None
    captured = (runners.prefills, runners.steps, *runners.extends)
    assert [one.name for one in captured] == ["draft_prefill", "draft", "draft_extend"]
    assert all(set(one.graphs) == set(one.sizes) for one in captured)


def test_a_target_keeps_what_its_layers_are_given_for_its_draft() -> None:
    runner = _runner(captures=(0, 2))
    assert runner.decode_graphs is not None
    batch = runner.decode_graphs.dummy_batch(2)
    batch = replace(batch, input_ids=torch.arange(batch.num_tokens))
    found = runner.decoder(batch, runner.kv)
    assert runner.decoder.embedding is not None
    embedded = runner.decoder.embedding(batch.input_ids, runner.comm)
    torch.testing.assert_close(found.hidden_states[:, :64], embedded)
    assert found.hidden_states.shape == (8, 128) and not found.hidden_states[:, 64:].equal(embedded)
    replayed = runner.decode_graphs.replay(batch)
    torch.testing.assert_close(replayed["hidden"], found.hidden_states)


def test_a_draft_attends_to_the_token_beside_what_the_target_made_of_it() -> None:
    runner = _runner({**CONFIG, "fc_norm": True})
    draft, seen = _draft(runner), []
    layer = draft.decoder.layers[0]
    layer.mixer.qkv.register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    assert runner.draft_runners is not None
    batch = runner.draft_runners.extends[0].dummy_batch(3)
    states = torch.randn(batch.num_tokens, 3 * 64)
    found = draft(batch, runner.draft_kvs[0], states)
    assert draft.fusion is not None and runner.decoder.embedding is not None
    parts = zip(states.chunk(3, -1), draft.fusion.norms, strict=True)
    normed = [F.rms_norm(part, (64,), norm.weight, 1e-6) for part, norm in parts]
    state = F.linear(torch.cat(normed, -1), draft.fusion.mix)
    token = runner.decoder.embedding(batch.input_ids, runner.comm)
    norms = layer.mixer_norms
    pairs = ((token, norms.token), (state, norms.state))
    wanted = [F.rms_norm(rows, (64,), norm.weight, 1e-6) for rows, norm in pairs]
    torch.testing.assert_close(seen[0], torch.cat(wanted, -1))
    assert found.next_token_logits.shape == (3, 128) and found.hidden_states.shape == (12, 64)


@pytest.mark.parametrize(("config", "captures", "given"), [(CONFIG, (0, 1, 2), 192), (EAGLES, (), 64)])
def test_graphs_that_catch_up_answer_as_the_draft_does(
    config: dict[str, Any], captures: Sequence[int], given: int
) -> None:
    runner = _runner(config, captures)
    assert runner.draft_runners is not None
    [extend] = runner.draft_runners.extends
    batch, states = extend.dummy_batch(3), torch.randn(12, given)
    extend.hidden[:12].copy_(states)
    with torch.inference_mode():
        eager = runner.drafts[0](batch, runner.draft_kvs[0], states)
    replayed = extend.replay(batch)
    torch.testing.assert_close(replayed["logits"][:3], eager.next_token_logits)
    torch.testing.assert_close(replayed["hidden"], eager.hidden_states)


def test_under_dp_attention_a_draft_is_split_over_the_ranks_that_share_its_requests() -> None:
    runner = _runner(device=make_meta(), parallel=ParallelConfig(tp=2), of=DP2)
    draft = _draft(runner)
    assert draft.decoder.head.weight.shape == (64, 64) and draft.comm.size("tp") == 2
    assert runner.draft_runners.steps._dp_tokens(2).global_num_tokens_cpu is None


def test_what_eagles_layers_make_is_kept_once() -> None:
    """Nothing norms it: what its head reads is what its next step is given."""
    runners = _runner(EAGLES, ()).draft_runners, _runner().draft_runners
    assert [sorted(one.prefills.outputs) for one in runners if one and one.prefills] == [
        ["hidden"],
        ["before", "hidden"],
    ]


def test_its_tables_are_its_targets_but_for_its_own_head() -> None:
    runner = _runner()
    draft = _draft(runner)
    assert draft.embedding is runner.decoder.embedding and draft.decoder.head is not runner.decoder.head
    taking = _draft(_runner({**CONFIG, "draft_vocab_size": None}))
    eagles = _runner(EAGLES, ())
    assert _draft(eagles).embedding is eagles.decoder.embedding
    assert _draft(eagles).decoder.head is eagles.decoder.head
    assert taking.decoder.logits.head is taking.decoder.head and taking.decoder.head.weight.shape == (320, 64)
    own = _draft(_runner(WHOLE, ()))
    assert own.embedding is not None and own.embedding.weight.shape == (320, 64)


def test_a_narrower_draft_keeps_its_embedding() -> None:
    config = {**CONFIG, "hidden_size": 32, "head_dim": 16, "target_hidden_size": 64}
    runner = _runner(config, device=make_meta())
    assert _draft(runner).embedding.weight.shape == (320, 32)


def test_a_pool_of_its_own_is_as_long_as_its_targets() -> None:
    runner = _runner()
    [kv] = runner.draft_kvs
    assert kv.cache.keys(0).shape == (513, 2, 16) and runner.kv.cache.keys(0).shape == (513, 4, 16)
    assert kv.slots is runner.kv.slots
