"""What SGLang makes of a group of compressed-tensors, by all that it says of weights and inputs."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.formats.assigned import Quantized
from runtime.server.formats.kinds import Kind
from runtime.server.formats.read import quantized_of
from runtime.server.layer_kinds import layer_kind
from runtime.server.unserved import unserved
from tests.server.servers import LLAMA, server

METHOD = "compressed-tensors"
QKV = [f"model.layers.1.self_attn.{one}_proj" for one in "qkv"]
EXPERTS = "model.layers.1.mlp.experts"
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
WHOLE = {**FP8, "strategy": "tensor"}
BLOCKS = {**FP8, "strategy": "block", "block_structure": [128, 128]}
TOKENS = {**FP8, "strategy": "token", "dynamic": True}
INT8 = {**FP8, "type": "int"}
INT4 = {**INT8, "num_bits": 4, "strategy": "group", "group_size": 32}
ASKEW = {**INT4, "symmetric": False}
FP4 = {**FP8, "num_bits": 4, "strategy": "tensor_group", "group_size": 16}
MXFP4 = {**FP8, "num_bits": 4, "strategy": "group", "group_size": 32}
TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 128, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip


def _section(form: str | None, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {f"group_{number}": group for number, group in enumerate(groups)}
    return {"quant_method": METHOD, "format": form, "config_groups": told, "ignore": ["lm_head"], **more}


def _group(weights: Any, inputs: Any = None, targets: Any = ("Linear",), **more: Any) -> dict[str, Any]:
    return {"targets": [*targets], "weights": weights, "input_activations": inputs, **more}


def _read(form: str | None, *groups: dict[str, Any], **more: Any) -> Quantized:
    return quantized_of(_section(form, *groups, **more), METHOD)


@pytest.mark.parametrize(
    ("form", "weights", "inputs"),
    [
        (None, FP8, TOKENS),
        ("mixed-precision", FP8, TOKENS),
        ("pack-quantized", FP8, TOKENS),
        ("float-quantized", {**FP8, "symmetric": False}, TOKENS),
        ("float-quantized", FP8, {**WHOLE, "symmetric": False}),
        ("float-quantized", FP8, {**TOKENS, "type": "int"}),
        ("float-quantized", BLOCKS, WHOLE),
        ("float-quantized", BLOCKS, None),
        ("float-quantized", {**WHOLE, "dynamic": True}, TOKENS),
        ("nvfp4-pack-quantized", FP4, TOKENS),
        ("pack-quantized", FP4, None),
        ("int-quantized", INT8, {**TOKENS, "type": "int", "symmetric": False}),
        ("int-quantized", INT8, {**WHOLE, "type": "int", "dynamic": True}),
        ("int-quantized", INT4, None),
        ("pack-quantized", {**INT4, "strategy": "channel", "group_size": None, "actorder": "static"}, None),
    ],
)
def test_a_scheme_that_sglang_has_not_is_no_number(form: str | None, weights: Any, inputs: Any) -> None:
    with pytest.raises(Unsupported, match=r"quantization_config: weights in .*: unknown here"):
        _read(form, _group(weights, inputs))


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({**FP8, "group_size": 32}, "strategy 'channel' has a group_size, 32"),
        ({**FP8, "strategy": "group"}, "strategy 'group' needs a group_size"),
        ({**FP8, "block_structure": [1, 1]}, "strategy 'channel' and block_structure go together"),
        ({**FP8, "dynamic": True}, "strategy 'channel' cannot be dynamic"),
        ({**FP8, "strategy": "token"}, "strategy 'token' has to be dynamic"),
        ({**WHOLE, "dynamic": "local"}, "strategy 'tensor' cannot be dynamic by itself alone"),
        ({**FP8, "type": "FLOAT"}, "type is 'FLOAT'"),
        ({**FP8, "scales": 1}, "scales is no member"),
    ],
)
def test_what_compressed_tensors_refuses_is_named(weights: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _read("float-quantized", _group(weights, TOKENS))


@pytest.mark.parametrize(
    ("weights", "inputs"),
    [(FP8, None), (FP8, WHOLE), (WHOLE, TOKENS), (WHOLE, None), (FP8, {**WHOLE, "dynamic": True})],
)
def test_experts_ask_more_of_their_inputs(weights: Any, inputs: Any) -> None:
    quantized = _read("float-quantized", _group(weights, inputs))
    assert quantized.of_linear(QKV) is not None
    with pytest.raises(ConfigError, match=r"SGLang has no experts in fp8 a (row|tensor)$"):
        quantized.of_experts(EXPERTS)


def test_experts_in_integers_ask_for_the_files_own_format() -> None:
    quantized = _read("mixed-precision", _group(INT4, format="pack-quantized"))
    assert quantized.own_formats and quantized.of_linear(QKV) is not None
    with pytest.raises(ConfigError, match="no experts in packed a group, of a file in another format"):
        quantized.of_experts(EXPERTS)


def test_experts_are_named_by_their_matrices_and_all_alike() -> None:
    usual = _group(WHOLE, WHOLE)
    with_name = _read("float-quantized", _group(FP8, TOKENS, [r"re:.*\.experts$"]), usual)
    assert with_name.of_experts(EXPERTS) == Kind("fp8", "tensor", is_static=True)
    halved = _read("float-quantized", _group(FP8, TOKENS, ["re:.*gate_proj$", "re:.*up_proj$"]), usual)
    with pytest.raises(ConfigError, match=r"experts\.0\.down_proj are of several kinds, and run as one"):
        halved.of_experts(EXPERTS)
    nowhere = _read("float-quantized", _group(FP8, TOKENS, ["re:.*self_attn.*"]))
    with pytest.raises(ConfigError, match=r"no target for .*experts\.0\.gate_proj"):
        nowhere.of_experts(EXPERTS)


def test_a_dense_model_has_no_experts_that_a_group_could_miss() -> None:
    section = _section(
        "float-quantized", _group(FP8, TOKENS, ["re:.*self_attn.*", "re:.*mlp.(gate|up|down)_proj"])
    )
    model = model_config({**TINY, "quantization_config": section})
    assert layer_kind(model, 0) == layer_kind(model, 1)


def test_mxfp4_is_of_all_experts_and_of_nothing_else() -> None:
    quantized = _read("mxfp4-pack-quantized", _group(MXFP4), ignore=["re:.*layers.1.*"])
    assert quantized.of_experts("model.layers.0.mlp.experts") == Kind("mxfp4")
    with pytest.raises(ConfigError, match="takes all experts for mxfp4"):
        quantized.of_experts(EXPERTS)
    with pytest.raises(ConfigError, match="nothing in mxfp4 but experts"):
        quantized.of_linear([one.replace(".1.", ".0.") for one in QKV])
    with pytest.raises(ConfigError, match="nothing in mxfp4 but all experts of a file"):
        _read("mixed-precision", _group(MXFP4, targets=["re:.*experts.*"]))
    with pytest.raises(Unsupported, match="'mxfp4-pack-quantized' of groups in others"):
        _read("mxfp4-pack-quantized", _group(FP8, TOKENS, format="float-quantized"))


@pytest.mark.parametrize("target", ["linear", "QKVParallelLinear", "re:.*Linear", "MoE", ""])
def test_a_name_of_sglangs_classes_is_refused(target: str) -> None:
    with pytest.raises(Unsupported, match="names classes of SGLang"):
        _read("float-quantized", _group(FP8, TOKENS, [target]))
    assert _read("float-quantized", _group(FP8, TOKENS, ["re:.*"])).of_linear(QKV) is not None


def test_linears_told_apart_are_so_whatever_is_ignored() -> None:
    in_fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 64]}
    for groups in ((_group(INT4),), ()):
        quantized = _read("pack-quantized", *groups, ignore=["re:.*self_attn.*"], linear_fp8_config=in_fp8)
        assert quantized.of_linear(QKV) == Kind("fp8", "block", (64, 64))
    for wrong in ({"quant_method": "w8a8"}, {"activation_scheme": "static"}):
        with pytest.raises(ConfigError, match=r"linear_fp8_config|activation_scheme"):
            _read("pack-quantized", _group(INT4), linear_fp8_config={**in_fp8, **wrong})


def test_what_else_a_section_tells_is_refused() -> None:
    with pytest.raises(Unsupported, match="sparsity_config"):
        _read("float-quantized", _group(FP8, TOKENS), sparsity_config={"format": "sparse-24-bitmask"})
    with pytest.raises(ConfigError, match="ignore is null"):
        _read("float-quantized", _group(FP8, TOKENS), ignore=None)


def test_a_head_is_in_no_blocks() -> None:
    quantized = _read("float-quantized", _group(BLOCKS, TOKENS, ["re:.*"]), ignore=[])
    with pytest.raises(ConfigError, match="SGLang has no lm_head in fp8 a block"):
        quantized.of_head()


@pytest.mark.parametrize(
    ("section", "release", "said"),
    [
        (_section("pack-quantized", _group(ASKEW)), "0.5.12", "not symmetric"),
        (_section("mixed-precision", _group(FP8, TOKENS, format="float-quantized")), "0.5.16", "formats of"),
        (_section("float-quantized", _group(FP8, TOKENS), ignore=["Model.layers.1"]), "0.5.16", "parts of"),
        ({"quant_method": "w8a8_int8", "ignore": ["layers.1.mlp.down"]}, "0.5.16", "parts of"),
        (_section("float-quantized", _group(FP8, TOKENS, ["re:.*"]), ignore=[]), "0.5.18", "lm_head"),
    ],
)
def test_older_releases_make_other_weights_of_some(section: dict[str, Any], release: str, said: str) -> None:
    model = model_config({**TINY, "quantization_config": section})
    told = {**LLAMA, "quantization_config": section}
    for version, is_said in ((release, True), ("0.5.23", False)):
        found = unserved(model, server(told, version=version), "LlamaForCausalLM")
        assert (found is not None and said in found.why) is is_said
