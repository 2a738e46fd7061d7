"""DiffusionGemma of a prompt alone: what its encoder answers, by the head that its canvases have."""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any

import torch


def of_prompts(model: Any) -> Any:
    """Its forward is then that of other models."""
    model.forward = MethodType(_forward, model)
    return model


def _forward(model: Any, tokens: torch.Tensor) -> Any:
    last = model.model.encoder.language_model(input_ids=tokens).last_hidden_state
    cap = model.final_logit_softcapping
    return SimpleNamespace(logits=torch.tanh(model.lm_head(last) / cap) * cap)


def blind(model: Any) -> None:
    """Without what it sees with."""
    model.model.encoder.vision_tower = model.model.encoder.embed_vision = None
