"""MiMo-V2.5: a model of text that may have a tower and an ear, and whose class is in a file beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.decoders.wrappers import WRAPPERS
from runtime.server.errors import ConfigError
from tests.book.cases import checkpoints


def _mimo(**told: Any) -> dict[str, Any]:
    return {**dict(checkpoints())["small/mimo_v2"], **told}


def test_mimo_v2s_text_is_mimo_v2_flashs_and_tells_what_its_own_class_would() -> None:
    hf = _mimo()
    whole, text = model_config(hf), model_config({**hf, "model_type": "mimo_v2_flash"})
    assert replace(whole, encoder=None) == text and whole.encoder is not None and whole.encoder.hears
    for name in ("vision_config", "audio_config"):
        assert model_config(_mimo(**{name: None})) == text
    for name in WRAPPERS["mimo_v2"].needs:
        with pytest.raises(ConfigError, match=f"config.json: {name} is missing"):
            model_config({one: value for one, value in hf.items() if one != name})


@pytest.mark.parametrize(
    ("section", "told", "said"),
    [
        ("vision_config", {"fullatt_block_indexes": 7}, "fullatt_block_indexes is 7"),
        ("vision_config", {"num_key_value_heads": 5}, "KV heads, which are 5"),
        ("audio_config", {"projection_layers": 3}, "SGLang has 1 or 2"),
        ("audio_config", {"speech_vocab_size": "10-20"}, "one a channel, is needed"),
        ("audio_config", {"speech_vocab_size": "10-x"}, "one a channel, is needed"),
    ],
)
def test_what_mimos_encoders_cannot_be_is_named(section: str, told: dict[str, Any], said: str) -> None:
    hf = _mimo()
    with pytest.raises(ConfigError, match=said):
        model_config({**hf, section: {**hf[section], "use_sink": True, **told}})


def test_mimos_sounds_have_words_of_all_channels_or_of_each() -> None:
    def words(told: Any) -> list[int]:
        weights = WRAPPERS["mimo_v2"].weights(_mimo(audio_config={"speech_vocab_size": told}), 64)
        return [one.shape[0] for one in weights if "speech_embeddings" in one.name]

    assert words("30") == words(30) == [30] * 8 and words("9-8-7-6-5-4-3-2") == [9, 8, 7, 6, 5, 4, 3, 2]
