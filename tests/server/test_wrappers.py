"""A multimodal model's text part: which section it is, and who says that its head is the embedding."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from runtime.server.decoders.wrappers import WRAPPERS, text_part
from runtime.server.errors import ConfigError, Unsupported

_WHOLE = {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm46v"}
_EITHER = {"qwen2_vl", "qwen2_5_vl", "glm4v", "glm4v_moe"}
_TIES = "tie_word_embeddings"


def _told(name: str, value: bool | None) -> dict[str, Any]:
    return {} if value is None else {name: value}


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_who_says_whether_the_head_is_the_embedding(model_type: str) -> None:
    """Of the rest the section alone does, and where it says nothing, its family."""
    for whole, own in product((True, False, None), repeat=2):
        section = {"hidden_size": 8, **_told(_TIES, own)}
        hf = {"model_type": model_type, "text_config": section, **_told(_TIES, whole)}
        found = text_part(WRAPPERS[model_type], hf).get(_TIES)
        if model_type in _WHOLE:
            assert found is bool(whole)
        elif model_type in _EITHER:
            assert found is bool(own or whole)
        else:
            assert found is own


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_what_the_whole_says_of_its_text(model_type: str) -> None:
    wrapper = WRAPPERS[model_type]
    hf = {
        "model_type": model_type,
        "text_config": {"hidden_size": 8},
        "dtype": "float16",
        "torch_dtype": None,
    }
    text = text_part(wrapper, hf)
    assert (text["model_type"], text["hidden_size"], text["dtype"]) == (wrapper.text_type, 8, "float16")
    assert "torch_dtype" not in text
    own = text_part(wrapper, {**hf, "text_config": {"model_type": "other", "dtype": "bfloat16"}})
    assert (own["model_type"], own["dtype"]) == ("other", "bfloat16")


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_a_text_section_may_be_missing_where_the_file_is_flat(model_type: str) -> None:
    wrapper, hf = (
        WRAPPERS[model_type],
        {"model_type": model_type, "hidden_size": 8, "vision_config": {"depth": 1}},
    )
    if model_type in ("qwen2_vl", "qwen2_5_vl"):
        text = text_part(wrapper, hf)
        assert (text["model_type"], text["hidden_size"]) == (wrapper.text_type, 8)
        assert "vision_config" not in text
    else:
        with pytest.raises(Unsupported, match="without a text_config"):
            text_part(wrapper, hf)
    with pytest.raises(ConfigError, match="text_config is 'x': an object is needed"):
        text_part(wrapper, {**hf, "text_config": "x"})
