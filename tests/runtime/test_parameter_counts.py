"""As many parameters as transformers counts on meta, of published sizes: text and encoder together."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.encoder import EncoderWeights
from runtime.server.decoders.known import model_config
from runtime.server.parallel_config import ParallelConfig
from tests.oracle.published import published
from tests.runtime.generation import make_runtime

META = torch.device("meta")
# Those that nobody lists yet have the sizes of their config class: a published model's, or nearly.
BY_CLASS = ("gemma2", "granite", "gemma3_text", "ministral3", "qwen3_vl", "glm4v", "mistral3")
PUBLISHED = ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Qwen/Qwen3.5-35B-A3B")


def _ours(hf: dict[str, Any]) -> int:
    model, comm = model_config(hf), VirtualCommunicator(ParallelConfig())
    decoder = Decoder(model, make_runtime(), comm, META, range(model.num_layers))
    parts = [decoder]
    if model.encoder is not None:
        parts.append(EncoderWeights(model.encoder.weights, comm, torch.bfloat16, META))
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def _theirs(config: Any) -> int:
    has_images = hasattr(config, "vision_config")
    auto = transformers.AutoModelForImageTextToText if has_images else transformers.AutoModelForCausalLM
    with META:
        model = auto.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", [*PUBLISHED, *BY_CLASS])
def test_as_many_as_transformers_has(name: str) -> None:
    if name in BY_CLASS:
        config = CONFIG_MAPPING[name](tie_word_embeddings=False)
        if hasattr(config, "text_config"):
            config.text_config.tie_word_embeddings = False
        hf = json.loads(json.dumps(config.to_dict()))
    else:
        hf = published()[name].config
        config = CONFIG_MAPPING[hf["model_type"]](
            **{name: value for name, value in hf.items() if name != "model_type"}
        )
    ours, theirs = _ours(hf), _theirs(config)
    assert abs(ours / theirs - 1) < 0.005, f"{ours:,} and {theirs:,}"
