"""EAGLE3's drafts with latents beside transformers' parts of a DeepSeek-V3, no layer of which is theirs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from runtime.models.own_draft import OwnDraftModel
from runtime.server.checkpoint import Checkpoint
from tests.runtime.families import make_reference, prompts, save
from tests.runtime.families.reference import served_json
from tests.runtime.test_eagle_drafts import OF_ANY, STEPS, answers, draft_of

ARCHITECTURE = "Eagle3DeepseekV2ForCausalLM"


def test_prefill_and_decode_agree(tmp_path: Path) -> None:
    model = _reference_of()
    told = {name: value for name, value in served_json(model).items() if name not in OF_ANY}
    told |= {"architectures": [ARCHITECTURE], "tie_word_embeddings": False}
    draft = draft_of(Checkpoint(told).model_config(), "EAGLE3", save(model, tmp_path))
    assert draft.fusion is not None and draft.fusion.parts is not None
    draft.fusion.parts.own.weight.data.normal_(std=0.1)
    [text], size = prompts(19), model.config.hidden_size
    states = torch.randn(len(text), 3 * size)
    logits, rows = answers(draft, text, states)
    want, before = _answers(model, draft, text, states)
    torch.testing.assert_close(logits, want[-STEPS - 1 :], atol=1e-4, rtol=0)
    torch.testing.assert_close(rows, before[-STEPS - 1 :], atol=1e-4, rtol=0)


def _reference_of() -> Any:
    """With matrices that read a token beside a state."""
    model = make_reference("deepseek_v3", num_hidden_layers=1, first_k_dense_replace=1)
    layer = model.model.layers[0]
    layer.hidden_norm = copy.deepcopy(layer.input_layernorm)
    layer.hidden_norm.weight.data.uniform_(0.5, 1.5)
    for name in ("q_a_proj", "kv_a_proj_with_mqa"):
        rows = getattr(layer.self_attn, name).out_features
        wide = nn.Linear(2 * model.config.hidden_size, rows, bias=False)
        wide.weight.data.normal_(std=0.2)
        setattr(layer.self_attn, name, wide)
    return model


@torch.inference_mode()
def _answers(
    model: Any, draft: OwnDraftModel, text: list[int], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    layer, size = model.model.layers[0], len(text)
    assert draft.fusion is not None and draft.fusion.parts is not None
    state = F.linear(states, draft.fusion.parts.own.weight)[None]
    token = model.model.embed_tokens(torch.tensor(text))[None]
    joined = torch.cat([layer.input_layernorm(token), layer.hidden_norm(state)], dim=-1)
    turned = model.model.rotary_emb(token, torch.arange(size)[None])
    mask = torch.full((size, size), float("-inf")).triu(1)[None, None]
    answer = layer.self_attn(hidden_states=joined, position_embeddings=turned, attention_mask=mask)[0]
    row = state + answer
    row = row + layer.mlp(layer.post_attention_layernorm(row))
    return model.lm_head(model.model.norm(row))[0], row[0]
