"""What is told of models that hear by Whisper's encoder, and where two of their readers differ."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.runtime.families import config_json, make_reference


def _told(name: str, audio: Any = None, text: Any = None, **whole: Any) -> dict[str, Any]:
    hf = config_json(make_reference(name))
    sections = {"audio_config": {**hf["audio_config"], **(audio or {})}}
    return {**hf, **sections, "text_config": {**hf["text_config"], **(text or {})}, **whole}


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (
            "qwen2_audio",
            {"text": {"tie_word_embeddings": True}},
            "SGLang then ties its head, transformers none",
        ),
        ("voxtral", {"text": {"tie_word_embeddings": True}}, "SGLang then ties its head, transformers none"),
        ("glmasr", {"tie_word_embeddings": True}, "SGLang reads that of text_config, False"),
        (
            "glmasr",
            {"text_config": {"model_type": "llama", "rope_theta": 5e5}},
            "transformers then turns by 10000",
        ),
        ("qwen2_audio", {"text": {"model_type": "llama"}}, "SGLang has qwen2_audio with qwen2 alone"),
        ("qwen2_audio", {"audio": {"hidden_size": 24}}, "hidden_size is 24, and d_model 16"),
        ("qwen2_audio", {"audio": {"d_model": 15}}, "15 cannot be divided among 2 heads"),
        ("glmasr", {"audio": {"intermediate_size": 40}}, "intermediate_size is 40, no multiple of 16"),
        ("voxtral", {"audio": {"downsample_factor": 4}}, "downsample_factor is 4: 2 joins"),
        ("voxtral", {"audio": {"model_type": "whisper"}}, "SGLang's class reads voxtral_encoder"),
        (
            "voxtral",
            {"text": {"quantization_config": {"quant_method": "fp8"}}},
            "text_config: quantization_config: which of two SGLang reads",
        ),
        ("voxtral", {"text_config": None}, "voxtral without a text_config"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_told(name, **changes))


def test_what_voxtrals_text_leaves_out_is_as_its_class_says() -> None:
    model = model_config(_told("voxtral", text_config={"model_type": "llama"}))
    assert (model.num_layers, model.hidden_size, model.vocab_size) == (30, 3072, 131072)
    assert next(iter(model.attention.values())).rope.theta == 1e8
