"""BERT and XLM-RoBERTa beside transformers' own classes: a prompt's first row, or what that scores."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from runtime.server.errors import ConfigError
from sgl_tune.deployment.models import find_model
from tests.runtime.families import prompts
from tests.runtime.random_models import alone

NAMES = (
    *("BertModel", "BertForSequenceClassification"),
    *("XLMRobertaModel", "XLMRobertaForSequenceClassification"),
)
_SPACE: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1, 2, 3),
    "num_attention_heads": (1, 2, 4),
    "intermediate_size": (48, 96),
    "hidden_act": ("gelu", "gelu_pytorch_tanh", "gelu_new"),
    "layer_norm_eps": (1e-12, 1e-5, 1e-2),
    "type_vocab_size": (1, 2),
    "num_labels": (1, 2, 5),
    "pad_token_id": (0, 1, 3),
}


def _made(name: str, **changes: Any) -> Any:
    kind = "Bert" if name.startswith("Bert") else "XLMRoberta"
    sizes = {"vocab_size": 99, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 96, "max_position_embeddings": 80, **changes}
    config = getattr(transformers, f"{kind}Config")(**sizes, position_embedding_type="absolute")
    config._attn_implementation = "eager"
    model = getattr(transformers, name)(config).float().eval()
    generator = torch.Generator().manual_seed(1)
    for tensor in model.parameters():
        tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * 0.3)
    return model


def _saved(model: Any, folder: Path, **changes: Any) -> Path:
    model.save_pretrained(folder)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **changes}))
    return folder


@torch.no_grad()
def _wanted(model: Any, text: list[int]) -> torch.Tensor:
    given = torch.tensor([text])
    answer = model(given, attention_mask=torch.ones_like(given))
    if hasattr(answer, "logits"):
        return answer.logits[0]
    return nn.functional.normalize(answer.last_hidden_state[0, 0], dim=-1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", NAMES)
def test_random_ones_are_transformers_own(name: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{name} {seed}")
    model = _made(name, **{one: dice.choice(choices) for one, choices in _SPACE.items()})
    texts = prompts(17, 1, 40, seed=seed)
    answers = alone(_saved(model, tmp_path), texts)
    for number, text in enumerate(texts):
        want = _wanted(model, text)
        torch.testing.assert_close(answers[number][0], want, atol=1e-4, rtol=1e-4)


def test_padding_has_its_own_place(tmp_path: Path) -> None:
    model = _made("XLMRobertaModel", pad_token_id=1)
    text = [5, 1, 1, 7, 8]
    got = alone(_saved(model, tmp_path), [[4, 6], text])[1][0]
    torch.testing.assert_close(got, _wanted(model, text), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is"),
        ({"position_embedding_type": None}, "position_embedding_type is None"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"num_attention_heads": 3}, "no multiple of num_attention_heads"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sbert_ce_default"),
    ],
)
def test_other_files_are_refused_by_name(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = _saved(_made("BertModel"), tmp_path, **told)
    assert any(said in one for one in find_model(str(folder), {}).checkpoint.model_config().obstacles)
    with pytest.raises(ConfigError):
        alone(folder, prompts(3))
