"""What SGLang's methods end at as they read a section: refused by its name and value, and no number."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 128, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
INT8 = {"quant_method": "blockwise_int8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}
TENSOR = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
CHANNEL = {**TENSOR, "qscheme": "per_channel"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}


def _quark(weight: Any, inputs: Any, **more: Any) -> dict[str, Any]:
    told = {"weight": weight, "input_tensors": inputs}
    return {"quant_method": "quark", "global_quant_config": told, **more}


def _obstacles(section: dict[str, Any], **fields: Any) -> tuple[str, ...]:
    return model_config({**LLAMA, **fields, "quantization_config": section}).obstacles


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({**FP8, "activation_scheme": "static", "weight_block_size": [32, 32]}, "'static' beside blocks"),
        ({**FP8, "activation_scheme": None}, "activation_scheme is None"),
        ({**FP8, "activation_scheme": "token"}, "activation_scheme is 'token'"),
        ({**FP8, "quant_method": "mxfp8", "activation_scheme": "static"}, "'static' beside blocks"),
        ({**FP8, "modules_to_not_convert": ["a", ""]}, "modules_to_not_convert: a name is empty"),
        ({**INT8, "activation_scheme": "static"}, "'static' beside blocks"),
        ({**INT8, "modules_to_not_convert": ["mlp"]}, "modules_to_not_convert of blockwise_int8"),
        ({"quant_method": "w8a8_int8", "ignore": ["re:.*mlp.*"]}, "ignore: 're:.*mlp.*' of w8a8_int8"),
        ({"quant_method": "w8a8_int8", "ignore": ["mlp.experts"]}, "ignore: 'mlp.experts' of w8a8_int8"),
        ({"quant_method": "modelopt", "quant_algo": "fp8"}, "quant_algo is 'fp8'"),
        ({"quant_method": "modelopt", "quant_algo": "nvfp4"}, "quant_algo is 'nvfp4'"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": None}, "ignore is null"),
        ({**AWQ, "group_size": -1}, "no AWQ of whole rows"),
        ({**AWQ, "lm_head": True}, "lm_head is quantized by AWQ"),
        ({"quant_method": "mxfp4"}, "mxfp4 of llama"),
        (_quark(TENSOR, None), "of quark's formats only"),
        (_quark(TENSOR, {**CHANNEL, "is_dynamic": True}), "of quark's formats only"),
        (_quark(CHANNEL, CHANNEL), "of quark's formats only"),
        (_quark(TENSOR, TENSOR, exclude=["re:.*mlp.*"]), "exclude: 're:.*mlp.*' of quark"),
    ],
)
def test_a_section_that_ends_a_server_is_an_obstacle(section: dict[str, Any], said: str) -> None:
    found = _obstacles(section)
    assert len(found) == 1 and said in found[0]


@pytest.mark.parametrize(
    "section",
    [
        {**FP8, "activation_scheme": "static"},
        {**FP8, "weight_block_size": [32, 32], "ignored_layers": ["model.layers.1"]},
        INT8,
        {"quant_method": "w8a8_int8", "ignore": ["lm_head", "model.layers.1.mlp.down_proj"]},
        {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
        AWQ,
        _quark(TENSOR, TENSOR, exclude=["lm_head", "model.layers.0.mlp.down_proj"]),
        _quark(CHANNEL, {**CHANNEL, "is_dynamic": True}),
    ],
)
def test_others_are_none(section: dict[str, Any]) -> None:
    assert _obstacles(section) == ()


def test_a_list_that_is_none_is_refused_by_who_reads_it() -> None:
    with pytest.raises(ConfigError, match=r"ignore is 1\.5: a list of modules is needed"):
        _obstacles(_quark(TENSOR, TENSOR, exclude=1.5))


@pytest.mark.parametrize("family", ["mixtral", "minimax_m2"])
def test_a_head_without_a_method_is_quantized_in_no_file(family: str) -> None:
    """Which ModelOpt's formats have quantized where their list names none."""
    told = served_json(make_reference(family))
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}
    found = model_config({**told, "quantization_config": section}).obstacles
    assert any("lm_head is quantized in the file, and not so in SGLang's class" in one for one in found)
