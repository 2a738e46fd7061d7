"""A multimodal model's text part: which section it is, and who says that its head is the embedding."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from runtime.server.decoders.wrappers import WRAPPERS, text_part
from runtime.server.errors import ConfigError, Unsupported

_WHOLE = {
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen4_exp",
    "qwen3_omni_moe",
    "glm46v",
    "intern_s2_preview",
    "interns1_pro",
    "interns2_mobius",
}
_EITHER = {
    "qwen2_vl",
    "qwen2_5_vl",
    "glm4v",
    "glm4v_moe",
    "glm_ocr",
    "deepseek_vl_v2",
    "unlimited-ocr",
    "minimax_m3_vl",
    "glm5_next",
    *("mllama", "moss_vl", "muse_glimmer", "muse_spark"),
}
_BOTH = {"cohere2_vision", "diffusion_gemma", "gemma3n"}
_TIES = "tie_word_embeddings"


def _section(model_type: str, /, **members: Any) -> dict[str, Any]:
    """Under the wrapper's own name, and of an architecture that it knows where that decides the family."""
    wrapper = WRAPPERS[model_type]
    known: dict[str, Any] = _needed(model_type)
    if wrapper.by_architecture:
        known["architectures"] = [*wrapper.by_architecture][:1]
    if wrapper.served:
        known["model_type"] = wrapper.served[0]
    return {wrapper.section: {**known, **members}}


def _needed(model_type: str) -> dict[str, Any]:
    wrapper = WRAPPERS[model_type]
    version = {"version": next(iter(wrapper.by_version))} if wrapper.by_version else {}
    return {**dict.fromkeys(wrapper.needs), **version}


def _file(model_type: str, told: dict[str, Any]) -> dict[str, Any]:
    """With what a wrapper's own class tells where that stands."""
    inside = WRAPPERS[model_type].inside
    return {"model_type": model_type, **(told if inside is None else {inside: told})}


def _told(name: str, value: bool | None) -> dict[str, Any]:
    return {} if value is None else {name: value}


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_who_says_whether_the_head_is_the_embedding(model_type: str) -> None:
    """Of the rest the section alone does, and where it says nothing, its family."""
    for whole, own in product((True, False, None), repeat=2):
        section = _section(model_type, hidden_size=8, **_told(_TIES, own))
        hf = _file(model_type, {**section, **_told(_TIES, whole)})
        found = text_part(WRAPPERS[model_type], hf).get(_TIES)
        if model_type in _WHOLE:
            assert found is bool(whole)
        elif model_type in _EITHER:
            assert found is bool(own or whole)
        elif model_type == "lfm2_vl":
            assert found is (whole is not False)
        elif model_type == "internvl_chat" or (model_type in _BOTH and whole is False):
            assert found is False
        else:
            assert found is own


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_what_the_whole_says_of_its_text(model_type: str) -> None:
    wrapper = WRAPPERS[model_type]
    told = {"dtype": "float16", "torch_dtype": None}
    text = text_part(wrapper, {**told, **_file(model_type, _section(model_type, hidden_size=8))})
    by_name = next(iter({**wrapper.by_architecture, **wrapper.by_version}.values()), None)
    family = by_name or (*wrapper.served, wrapper.text_type)[0]
    assert (text["model_type"], text["hidden_size"], text["dtype"]) == (family, 8, "float16")
    assert "torch_dtype" not in text
    if wrapper.served:
        return
    section = _section(model_type, model_type="other", dtype="bfloat16")
    own = text_part(wrapper, {**told, **_file(model_type, section)})
    named = "other" if wrapper.is_named else wrapper.text_type
    assert (own["model_type"], own["dtype"]) == (by_name or named, "bfloat16")


@pytest.mark.parametrize(
    ("model_type", "own"),
    [
        ("cohere2_vision", {}),
        ("cohere2_vision", {"model_type": "cohere2"}),
        ("lfm2_vl", {"model_type": "lfm2_moe"}),
    ],
)
def test_a_wrapper_that_sglang_has_around_one_family_names_any_other(
    model_type: str, own: dict[str, Any]
) -> None:
    """Left out, it is what transformers' class makes of it."""
    with pytest.raises(Unsupported, match=f"text_config: model_type is '.*': SGLang has {model_type} with"):
        text_part(WRAPPERS[model_type], {"model_type": model_type, "text_config": own})


@pytest.mark.parametrize("model_type", WRAPPERS)
def test_a_text_section_may_be_missing_where_the_file_is_flat(model_type: str) -> None:
    wrapper = WRAPPERS[model_type]
    told = {**_needed(model_type), "hidden_size": 8, "vision_config": {"depth": 1}}
    hf = _file(model_type, told)
    if wrapper.is_flat:
        text = text_part(wrapper, hf)
        named = next(iter(wrapper.by_version.values()), wrapper.text_type)
        assert (text["model_type"], text["hidden_size"]) == (named, 8)
        assert "vision_config" not in text
    else:
        with pytest.raises(Unsupported, match=f"without a {wrapper.section}"):
            text_part(wrapper, hf)
    with pytest.raises(ConfigError, match=f"{wrapper.section} is 'x': an object is needed"):
        text_part(wrapper, _file(model_type, {**told, wrapper.section: "x"}))


def test_what_a_wrapper_stands_inside_of_may_be_missing_or_no_object() -> None:
    with pytest.raises(Unsupported, match="qwen3_omni_moe without a thinker_config"):
        text_part(WRAPPERS["qwen3_omni_moe"], {"model_type": "qwen3_omni_moe", "text_config": {}})
    with pytest.raises(ConfigError, match="thinker_config is 7: an object is needed"):
        text_part(WRAPPERS["qwen3_omni_moe"], {"model_type": "qwen3_omni_moe", "thinker_config": 7})
