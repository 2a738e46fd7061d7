"""Mllama's layers that attend to images: skipped where there are none, and run, for nothing, by a graph."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import LogitsMode, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.models.crossing_layer import CrossingLayer
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.memory.checkpoints import DATA
from tests.memory.quantized import SECTIONS
from tests.runtime.families import config_json, make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime


def test_a_graph_runs_them_and_answers_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, alone = make_reference("mllama_text_model"), ParallelConfig()
    one = Generation(save(reference, tmp_path), alone, make_runtime(), VirtualCommunicator(alone))
    crossing = [layer for layer in one.decoder.layers if isinstance(layer, CrossingLayer)]
    ran: list[int] = []
    for layer in crossing:
        layer.mixer.register_forward_hook(lambda *_, number=layer.number: ran.append(number))
    [text] = prompts(17)
    for captured in (False, True):
        requests = one.pool.requests.allocate(1)
        batch = make_extend_batch([text], requests, one.pool, logits_mode=LogitsMode.ALL)
        answer = one.decoder(replace(batch, captured=captured), one.pool).full_logits
        torch.testing.assert_close(answer, reference_logits(reference, text), atol=1e-4, rtol=0)
        assert ran == ([1, 2] if captured else [])


@pytest.mark.parametrize(
    ("told", "kinds"),
    [
        ({"cross_attention_layers": [1, 3, 9]}, "full cross full cross"),
        ({"cross_attention_layers": None, "num_hidden_layers": 5}, "full full full cross full"),
    ],
)
def test_which_they_are(told: dict[str, Any], kinds: str) -> None:
    model = model_config({**config_json(make_reference("mllama_text_model")), **told})
    assert " ".join(model.attention_kinds) == kinds and not model.obstacles
    assert (model.vocab_size, model.logits_size) == (99 + 8, 99)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        *(
            ({name: True}, f"{name} is True")
            for name in ("attention_bias", "bias", "mlp_bias", "qkv_bias", "tie_word_embeddings")
        ),
        ({"rope_is_neox_style": False}, "rope_is_neox_style is False"),
        ({"head_dim": 8}, "head_dim is 8: transformers' heads are 16 wide"),
        ({"cross_attention_layers": []}, "names none of its layers, or all"),
        ({"cross_attention_layers": [0, 1, 2, 3]}, "names none of its layers, or all"),
    ],
)
def test_what_no_class_has_of_its_text_is_named(told: dict[str, Any], said: str) -> None:
    model = model_config({**config_json(make_reference("mllama_text_model")), **told})
    assert any(said in one for one in model.obstacles)


@pytest.mark.parametrize(
    ("section", "told", "said"),
    [
        ("text_config", {"model_type": "llama"}, "SGLang has mllama with mllama_text_model alone"),
        ("text_config", {"num_attention_heads": 3}, "64 cannot be divided among 3 heads"),
        ("text_config", {"cross_attention_layers": ["x"]}, "a list of layers is needed"),
        ("vision_config", {"model_type": "siglip"}, "model_type is 'siglip'"),
        ("vision_config", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ("vision_config", {"image_size": [28, 28]}, "SGLang divides a number"),
        ("vision_config", {"num_attention_heads": 2}, "attention_heads is 4, and num_attention_heads 2"),
    ],
)
def test_what_is_not_known_of_a_file_is_refused(section: str, told: dict[str, Any], said: str) -> None:
    hf = config_json(make_reference("mllama"))
    with pytest.raises(ConfigError, match=said):
        model_config({**hf, section: {**hf[section], **told}})


@pytest.mark.parametrize("where", ["whole", "text_config"])
def test_a_tied_head_is_named_wherever_it_is_told(where: str) -> None:
    hf = config_json(make_reference("mllama"))
    told = {"tie_word_embeddings": True}
    whole = {**hf, **told} if where == "whole" else {**hf, where: {**hf[where], **told}}
    if where == "whole":
        whole["text_config"] = {n: one for n, one in hf["text_config"].items() if n not in told}
    assert any("tie_word_embeddings is True" in one for one in model_config(whole).obstacles)


_NAMES = [f"vision_model.transformer.layers.0.{one}" for one in ("self_attn.q_proj", "mlp.fc1", "mlp.fc2")]


@pytest.mark.parametrize(
    ("of", "listed", "said"),
    [
        ("int4", ["re:.*lm_head", "re:vision_model.*", "re:multi_modal_projector.*"], ""),
        ("int4", _NAMES, "no list means vision_model.transformer.layers.0.self_attn.qkv_proj"),
        ("fp8 a row", _NAMES, ""),
        ("fp8 a row", ["model.language_model.layers.0.mlp.down_proj"], "mlp.down_proj is told apart"),
    ],
)
def test_what_of_quantized_ones_is_read(of: str, listed: list[str], said: str) -> None:
    """What sees, and is quantized in SGLang's class alone, is read as long as it has as many values."""
    config = json.loads((DATA / "published_families.json").read_text())["a/llama-3.2-11b-vision-from-memory"]
    told = {**config, "quantization_config": {**SECTIONS[of], "ignore": ["lm_head", *listed]}}
    assert said in str(model_config(told).obstacles) if said else not model_config(told).obstacles
