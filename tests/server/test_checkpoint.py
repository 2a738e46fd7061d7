"""What is read of a config.json, where it stands, and which of it cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError

_FILE = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}


def test_modelopts_own_file_stands_in_where_the_config_says_nothing() -> None:
    both = Checkpoint({"model_type": "llama"}, _FILE).quantized
    assert both == {
        "model_type": "llama",
        "quantization_config": {"quant_method": "modelopt", **_FILE["quantization"]},
    }
    own = {"quantization_config": {"quant_method": "fp8"}}
    assert Checkpoint(own, _FILE).quantized == own
    assert Checkpoint({}, {"quantization": "FP8"}).quantized == {}


def test_gpt_2s_sizes_have_the_names_of_others_too() -> None:
    model = Checkpoint({"model_type": "gpt2", "n_head": 16})
    assert (model.get("num_attention_heads"), model.context_length) == (16, 1024)
    assert Checkpoint({"model_type": "gpt2", "max_position_embeddings": 7}).context_length == 7


@pytest.mark.parametrize("section", ["text_config", "llm_config", "thinker_config", "language_config"])
def test_a_language_models_own_section_comes_first(section: str) -> None:
    model = Checkpoint({"hidden_size": 1, "vocab_size": 2, section: {"hidden_size": 3}})
    assert (model.get("hidden_size"), model.get("vocab_size"), model.get("other", 4)) == (3, 2, 4)


def test_a_section_may_have_the_text_a_level_deeper() -> None:
    assert Checkpoint({"thinker_config": {"text_config": {"hidden_size": 3}}}).get("hidden_size") == 3


@pytest.mark.parametrize("listed", [["a", 1], "abc", {"a": 1}, [None]])
def test_a_list_of_names_has_names_alone(listed: Any) -> None:
    with pytest.raises(ConfigError, match=r"layer_types is .*, not a list of names"):
        Checkpoint({"layer_types": listed}).names("layer_types")
    assert Checkpoint({"layer_types": ["a", "b"]}).names("layer_types") == ("a", "b")
    assert Checkpoint({}).names("layer_types") == ()


@pytest.mark.parametrize("value", [True, "8", 8.5, float("inf"), float("nan"), [8]])
def test_a_whole_number_is_no_other_kind_of_value(value: Any) -> None:
    with pytest.raises(ConfigError, match="head_dim"):
        Checkpoint({"head_dim": value}).whole("head_dim", 0)


def test_a_whole_number_may_be_written_as_a_fraction_and_has_bounds() -> None:
    model = Checkpoint({"head_dim": 64.0, "vision_config": {"depth": 27}})
    assert model.whole("head_dim", 0) == 64 and model.whole("other", 7) == 7
    assert model.whole("depth", 0, within="vision_config") == 27 and model.whole("depth", 3) == 3
    assert Checkpoint({"head_dim": 1}).whole("head_dim", 0, low=1) == 1
    with pytest.raises(ConfigError, match="not between 1 and"):
        Checkpoint({"head_dim": 0}).whole("head_dim", 0, low=1)


@pytest.mark.parametrize(
    ("architecture", "declared", "dtype"),
    [
        ("LlavaLlamaForCausalLM", {"dtype": "bfloat16"}, "float16"),
        ("LlavaForConditionalGeneration", {"dtype": "bfloat16"}, "bfloat16"),
        ("LlamaForCausalLM", {"torch_dtype": "torch.float16"}, "float16"),
        ("LlamaForCausalLM", {"dtype": "bfloat16", "torch_dtype": "float16"}, "bfloat16"),
        ("LlamaForCausalLM", {}, "float32"),
        ("BeamForCausalLM", {"model_type": "beam"}, "bfloat16"),
        ("MuseSparkForConditionalGeneration", {"text_config": {"dtype": "float32"}}, "bfloat16"),
    ],
)
def test_the_dtype_is_what_is_declared(architecture: str, declared: dict[str, Any], dtype: str) -> None:
    assert Checkpoint({"architectures": [architecture], **declared}).dtype == dtype


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 4}}, 8192),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4}}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 5120),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512}}, 2048),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4}}, 2048),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4}}, 2048),
        ({"rope_scaling": {"rope_type": "linear"}}, 2048),
        ({}, 2048),
    ],
)
def test_positions_are_stretched_where_the_length_is_not(scaling: dict[str, Any], length: int) -> None:
    assert Checkpoint({"max_position_embeddings": 2048, **scaling}).context_length == length


@pytest.mark.parametrize("factor", [0, -1, True, "4", float("nan"), float("inf")])
def test_a_factor_is_a_number_above_0(factor: Any) -> None:
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    with pytest.raises(ConfigError, match="rope_scaling has factor"):
        assert Checkpoint({"max_position_embeddings": 2048, **scaling}).context_length


@pytest.mark.parametrize(
    ("members", "sinks"),
    [
        ({"architectures": ["GptOssForCausalLM"]}, True),
        ({"architectures": ["MiMoV2FlashForCausalLM"], "learnable_sink": True}, False),
        ({"architectures": ["MiMoV2FlashForCausalLM"], "add_swa_attention_sink_bias": True}, True),
        ({"architectures": ["MiMoV2FlashForCausalLM"], "add_full_attention_sink_bias": True}, True),
        ({"architectures": ["LlamaForCausalLM"], "add_swa_attention_sink_bias": True}, False),
        ({"architectures": ["LlamaForCausalLM"], "learnable_sink": True}, True),
    ],
)
def test_who_has_attention_sinks(members: dict[str, Any], sinks: bool) -> None:
    assert Checkpoint(members).has_attention_sinks is sinks


@pytest.mark.parametrize(
    ("widths", "wide"),
    [
        ({"head_dim": 192, "v_head_dim": 128}, True),
        ({"head_dim": 128, "v_head_dim": 128}, False),
        ({"head_dim": 128}, False),
        ({"v_head_dim": 128}, False),
    ],
)
def test_keys_are_wide_where_both_widths_are_told_and_differ(widths: dict[str, int], wide: bool) -> None:
    assert Checkpoint(widths).has_wide_keys is wide


@pytest.mark.parametrize(("listed", "name"), [(["A", "B"], "A"), ([], ""), (None, "")])
def test_the_architecture_is_the_first_of_a_list(listed: Any, name: str) -> None:
    assert Checkpoint({"architectures": listed}).architecture == name


def test_a_name_and_a_section_are_of_their_kind() -> None:
    assert Checkpoint({}).model_type == "" and Checkpoint({}).mapping("a") == {}
    for hostile in (
        lambda: Checkpoint({"model_type": 8}).model_type,
        lambda: Checkpoint({"a": [1]}).mapping("a"),
    ):
        with pytest.raises(ConfigError, match="is needed"):
            hostile()
    with pytest.raises(ConfigError, match="not an object"):
        Checkpoint({"a": [1]}).section("a")
    nested = Checkpoint({"a": {"b": 1}, "text_config": {"a": {"b": 2}}})
    assert nested.section("a") == {"b": 2} and nested.section("a", within_text=False) == {"b": 1}
