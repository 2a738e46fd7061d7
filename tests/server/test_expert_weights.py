"""How experts are stored, by what a config.json says of it."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import (
    has_fp4_experts,
    has_int4_experts,
    has_nvfp4_experts,
    has_w4a16_experts,
    is_mxfp8_modelopt,
)
from tests.oracle.deepseek_v4 import FLASH

_INT4 = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int", "symmetric": True}


def _stored(**section: Any) -> Checkpoint:
    return Checkpoint({"quantization_config": section})


def _groups(**weights: Any) -> Checkpoint:
    return _stored(config_groups={"group_0": {"weights": weights}})


def test_kimis_experts_are_int4_in_groups_of_32() -> None:
    assert has_int4_experts(_groups(**_INT4))


@pytest.mark.parametrize(
    ("name", "other"), [("num_bits", 8), ("group_size", 128), ("strategy", "channel"), ("type", "float")]
)
def test_what_differs_in_one_of_these_is_stored_otherwise(name: str, other: Any) -> None:
    assert not has_int4_experts(_groups(**{**_INT4, name: other}))
    assert not has_int4_experts(_groups(**{key: value for key, value in _INT4.items() if key != name}))


@pytest.mark.parametrize("section", [{}, {"config_groups": 4}, {"config_groups": {"group_0": [1]}}])
def test_what_says_nothing_of_groups_has_no_int4(section: dict[str, Any]) -> None:
    assert not has_int4_experts(_stored(**section))


@pytest.mark.parametrize(
    ("architecture", "section", "fp4"),
    [
        ("DeepseekV4ForCausalLM", {}, True),
        ("DeepseekV4ForCausalLM", {"store_dtype": "fp8"}, False),
        ("DeepseekV4ForCausalLM", {"expert_dtype": "fp8"}, False),
        ("DeepseekV4ForCausalLM", {"expert_dtype": "fp4"}, True),
        ("DeepseekV3ForCausalLM", {"store_dtype": "mxfp4"}, True),
        ("DeepseekV3ForCausalLM", {"routed_experts_quant_method": "mxfp4", "store_dtype": "fp8"}, True),
        ("DeepseekV3ForCausalLM", {}, False),
    ],
)
def test_deepseek_v4s_experts_are_fp4_unless_it_says_otherwise(
    architecture: str, section: dict[str, Any], fp4: bool
) -> None:
    model = Checkpoint({"architectures": [architecture], "quantization_config": section})
    assert has_fp4_experts(model) == fp4


def test_a_published_v4_tells_its_experts_beside_the_section() -> None:
    assert has_fp4_experts(Checkpoint(FLASH))
    assert not has_fp4_experts(Checkpoint({**FLASH, "expert_dtype": "fp8"}))


_MIXED = {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "group_size": 16}


def test_a_mixed_checkpoint_has_nvfp4_experts_in_groups() -> None:
    assert has_nvfp4_experts(_stored(**_MIXED))
    for name, other in (("quant_algo", "FP8"), ("moe_quant_algo", "FP8"), ("group_size", None)):
        assert not has_nvfp4_experts(_stored(**{**_MIXED, name: other}))


def test_w4a16_is_told_layer_by_layer() -> None:
    layers = {"model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "w4a16_nvfp4"}}
    assert has_w4a16_experts(_stored(quantized_layers=layers))
    assert not has_w4a16_experts(
        _stored(quantized_layers={"model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4"}})
    )
    assert not has_w4a16_experts(_stored(quantized_layers={key: {"quant_algo": "FP8"} for key in layers}))


def test_mxfp8_is_an_algorithm_of_modelopts() -> None:
    assert is_mxfp8_modelopt(_stored(quant_algo="mxfp8"))
    assert not is_mxfp8_modelopt(_stored(quant_algo="FP8")) and not is_mxfp8_modelopt(Checkpoint({}))
