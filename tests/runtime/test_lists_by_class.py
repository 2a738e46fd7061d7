"""What lists of compressed-tensors and ModelOpt mean by the names that SGLang's classes have."""

from __future__ import annotations

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.packed import unpacked
from tests.memory.quantized import SECTIONS
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

_QKV = [f"model.layers.0.self_attn.{one}_proj" for one in "qkv"]


def _obstacles(family: str, section: str, *plain: str) -> str:
    told = served_json(make_reference(family))
    key = "ignore" if "ignore" in SECTIONS[section] else "modules_to_not_convert"
    listed = {**SECTIONS[section], key: ["lm_head", *plain]}
    return " ".join(model_config({**told, "quantization_config": listed}).obstacles)


@pytest.mark.parametrize(
    ("family", "section", "plain", "said"),
    [
        ("llama", "fp8 a row", _QKV, "self_attn.q_proj is plain in the file, and not so in SGLang's class"),
        ("llama", "fp8 a row", ["re:.*self_attn.*"], None),
        ("llama", "fp8 a row", ["model.layers.0.self_attn.qkv_proj"], None),
        ("llama", "fp8", _QKV, None),
        ("qwen3_moe", "fp8 a row", _QKV, None),
        ("qwen3_moe", "fp8 a row", ["re:.*v_proj.*"], "only some are excluded"),
        ("gemma3_text", "fp8 a row", ["re:.*gate_up_proj"], None),
        ("mixtral", "fp8 a row", ["re:model.layers.1.self_attn.*"], "layers.1.self_attn.q_proj is plain in"),
        ("mixtral", "fp8 a row", ["re:.*layers.1.self_attn.*"], None),
        ("hunyuan_v1_dense", "modelopt fp8", ["model.layers.1*"], "layers.1.self_attn.q_proj is plain in"),
        ("hunyuan_v1_dense", "modelopt fp8", ["*self_attn*"], "lm_head is plain in the file"),
        ("hunyuan_v1_dense", "modelopt nvfp4", [], "lm_head is plain in the file"),
        ("hunyuan_v1_moe", "fp8 a row", ["re:.*layers.1.*"], "layers.1.self_attn.q_proj is plain in"),
        ("hy_v3", "modelopt fp8", ["model.layers.1*"], "is plain in the file"),
        ("hy_v3", "modelopt fp8", ["*layers.1*"], None),
        ("gpt_oss", "fp8", [], "self_attn.q_proj is quantized in the file"),
        ("gpt_oss", "fp8", ["self_attn"], None),
        ("qwen3_next", "modelopt nvfp4", [], "self_attn.q_proj is quantized in the file"),
        ("qwen3_next", "modelopt nvfp4", ["*q_proj*", "*k_proj*", "*v_proj*"], None),
        ("nemotron_h", "fp8 a row", [], "experts of compressed-tensors with gates, and these have none"),
        ("nemotron_h", "modelopt fp8", [], None),
        ("nemotron_h", "fp8 a row", ["re:.*experts.*"], None),
    ],
)
def test_a_list_means_what_its_class_looks_for(
    family: str, section: str, plain: list[str], said: str | None
) -> None:
    found = _obstacles(family, section, *plain)
    assert found == "" if said is None else said in found


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        ("re:.*self_attn.*", True),
        ("re:.*vision_tower.*", True),
        ("re:.*layers.0.*", True),
        ("re:.*language_model.layers.0.*", False),
        ("re:model.layers.0.*", False),
    ],
)
def test_an_expression_names_no_model_before_the_layers_of_a_part(expression: str, known: bool) -> None:
    said = _obstacles("gemma4_unified", "fp8 a row", expression)
    assert ("means by SGLang's names of gemma4_unified" in said) == (not known)


def test_what_a_class_unpacks() -> None:
    assert unpacked("LlamaForCausalLM", "compressed-tensors") == ()
    assert unpacked("LlamaForCausalLM", "quark") == ("gate_up_proj", "fused_qkv_a_proj_with_mqa")
    assert unpacked("Qwen3MoeForCausalLM", "compressed-tensors") == ("qkv_proj", "gate_up_proj")
    assert unpacked("DeepseekV3ForCausalLM", "compressed-tensors") == ("fused_qkv_a_proj_with_mqa",)
