"""What is read of a config.json, where it stands, and which of it cannot be meant."""

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint, architecture_of
from runtime.server.errors import ConfigError

_FILE = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}


def test_modelopts_own_file_stands_in_where_the_config_says_nothing() -> None:
    both = Checkpoint({"model_type": "llama"}, _FILE).quantized
    section = {"quant_method": "modelopt", **_FILE["quantization"]}
    assert both == {"model_type": "llama", "quantization_config": section}
    own = {"quantization_config": {"quant_method": "fp8"}}
    assert Checkpoint(own, _FILE).quantized == own
    assert Checkpoint({}, {"quantization": "FP8"}).quantized == {}


@pytest.mark.parametrize("value", [True, "8", 8.5, float("inf"), float("nan"), [8]])
def test_a_whole_number_is_no_other_kind_of_value(value: Any) -> None:
    with pytest.raises(ConfigError, match="head_dim"):
        Checkpoint({"head_dim": value}).whole("head_dim", 0)


def test_a_whole_number_may_be_written_as_a_fraction_and_has_bounds() -> None:
    assert Checkpoint({"head_dim": 64.0}).whole("head_dim", 0) == 64
    assert Checkpoint({}).whole("head_dim", 7) == 7
    with pytest.raises(ConfigError, match="not between 0 and"):
        Checkpoint({"head_dim": -1}).whole("head_dim", 0)


@pytest.mark.parametrize(
    ("architecture", "declared", "dtype"),
    [
        ("LlamaForCausalLM", {"torch_dtype": "torch.float16"}, "float16"),
        ("LlamaForCausalLM", {"dtype": "bfloat16", "torch_dtype": "float16"}, "bfloat16"),
        ("LlamaForCausalLM", {}, "float32"),
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


@pytest.mark.parametrize(("listed", "name"), [(["A", "B"], "A"), ([], ""), (None, "")])
def test_the_architecture_is_the_first_of_a_list(listed: Any, name: str) -> None:
    assert architecture_of({"architectures": listed}) == name


def test_a_name_and_a_section_are_of_their_kind() -> None:
    assert Checkpoint({}).model_type == "" and Checkpoint({}).section("a") == {}
    with pytest.raises(ConfigError, match="a name is needed"):
        assert Checkpoint({"model_type": 8}).model_type
    with pytest.raises(ConfigError, match="not an object"):
        Checkpoint({"a": [1]}).section("a")
