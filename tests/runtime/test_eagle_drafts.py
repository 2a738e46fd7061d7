"""EAGLE's drafts, of which transformers has no class, beside its layers without the norms that SGLang's
classes take away: one row of a token and a state goes in, and what the last layer makes comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.models.own_draft import OwnDraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.speculative_config import SpeculativeConfig
from tests.runtime.families import make_reference, prompts, save
from tests.runtime.families.reference import served_json
from tests.runtime.generation import CPU, make_pool, make_runtime
from tests.runtime.harmless_fields import HARMLESS

OF_ANY = {*HARMLESS, "output_attentions"}
ONE, STEPS = ParallelConfig(), 8
DRAFTS = [("llama", "LlamaForCausalLMEagle"), ("qwen2", "Qwen2ForCausalLMEagle")]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("family", "architecture"), DRAFTS)
def test_prefill_and_decode_agree(family: str, architecture: str, layers: int, tmp_path: Path) -> None:
    model = make_reference(family, num_hidden_layers=layers, use_cache=False)
    draft = _draft(model, architecture, save(model, tmp_path))
    [text], size = prompts(19), model.config.hidden_size
    states = torch.randn(len(text), size)
    got = answers(draft, text, states)
    want, rows = _reference(model, draft, text, states)
    torch.testing.assert_close(got[0], want[-STEPS - 1 :], atol=1e-4, rtol=0)
    torch.testing.assert_close(got[1], rows[-STEPS - 1 :], atol=1e-4, rtol=0)


def _draft(model: Any, architecture: str, folder: Path) -> OwnDraftModel:
    told = {name: value for name, value in served_json(model).items() if name not in OF_ANY}
    told |= {"architectures": [architecture], "tie_word_embeddings": False}
    draft = draft_of(Checkpoint(told).model_config(), "EAGLE", folder)
    assert draft.fusion is not None and draft.fusion.bias is not None
    for weight in (draft.fusion.mix, draft.fusion.bias):
        weight.data.normal_(std=0.1)
    return draft


def draft_of(config: ModelConfig, algorithm: str, folder: Path) -> OwnDraftModel:
    assert config.obstacles == ()
    runtime = make_runtime(speculative=SpeculativeConfig(algorithm))
    draft = OwnDraftModel(OwnDraft(config, runtime, ONE, (), 1), VirtualCommunicator(ONE), CPU)
    draft.decoder.load_hf(folder)
    draft.decoder.embedding = None  # as beside a target, whose table it looks into
    return draft


@torch.inference_mode()
def answers(draft: OwnDraftModel, text: list[int], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The last tokens one by one, each beside what a target made of it."""
    pool = make_pool(draft.own.model, draft.comm, draft.layer_ids, torch.float32, CPU)
    [request], first = pool.requests.allocate(1), len(text) - STEPS
    batch, found = make_extend_batch([text[:first]], [request], pool, [0]), []
    found.append(draft(batch, pool, states[:first]))
    for at in range(first, len(text)):
        batch = make_decode_batch([text[at]], [request], pool, [at])
        found.append(draft(batch, pool, states[at : at + 1]))
    logits = [one.next_token_logits[-1] for one in found if one.next_token_logits is not None]
    return torch.stack(logits), torch.stack([one.hidden_states[-1] for one in found])


@torch.inference_mode()
def _reference(
    model: Any, draft: OwnDraftModel, text: list[int], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    model.model.layers[0].input_layernorm = nn.Identity()
    model.model.norm = nn.Identity()
    assert draft.fusion is not None
    given = torch.cat([model.model.embed_tokens(torch.tensor(text)), states], dim=-1)
    entered = F.linear(given, draft.fusion.mix, draft.fusion.bias)
    rows = model.model(inputs_embeds=entered[None]).last_hidden_state[0]
    return model.lm_head(rows), rows
