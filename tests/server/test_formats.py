"""How a quantization_config's matrices are told apart, method by method."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.decoders.text_names import as_served, called_in
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.formats.integers import wna16
from runtime.server.formats.kinds import Kind, Served, format_of, format_of_experts
from runtime.server.formats.read import quantized_of
from runtime.server.layer_kinds import layer_kind

QKV = [f"model.layers.3.self_attn.{one}_proj" for one in "qkv"]
GATE_UP = [f"model.layers.3.mlp.{one}_proj" for one in ("gate", "up")]
EXPERTS = "model.layers.3.mlp.experts"
INT4 = {
    "num_bits": 4,
    "type": "int",
    "strategy": "group",
    "group_size": 32,
    "symmetric": True,
    "dynamic": False,
}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
TOKENS = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}


def _compressed(ignore: list[str], *groups: dict[str, Any], form: str = "pack-quantized") -> dict[str, Any]:
    told = {f"group_{number}": group for number, group in enumerate(groups)}
    return {"format": form, "ignore": ignore, "config_groups": told}


def _kinds(section: dict[str, Any], method: str) -> tuple[str | None, ...]:
    """Of attention's, of the dense MLP's and of the experts' weights."""
    quantized = quantized_of(section, method)
    found = quantized.of_linear(QKV), quantized.of_linear(GATE_UP), quantized.of_experts(EXPERTS)
    return tuple(None if kind is None else f"{kind.name}{kind.bits}" for kind in found)


def test_kimi_k2_thinkings_experts_alone_are_in_integers() -> None:
    ignored = [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    ]
    section = _compressed(ignored, {"targets": ["Linear"], "weights": INT4})
    assert _kinds(section, "compressed-tensors") == (None, None, "packed4")


def test_a_name_in_an_ignore_list_ends_a_modules_and_begins_none() -> None:
    section = _compressed(["layers.3.mlp.gate_proj", "layers.3.mlp.up_proj", "model.layers.3.self"], {
        "targets": ["Linear"], "weights": INT4,
    })  # fmt: skip
    assert _kinds(section, "compressed-tensors") == ("packed4", None, "packed4")


def test_what_is_stored_as_one_is_named_as_one() -> None:
    """GLM-4's gate_up_proj is one tensor of its checkpoints."""
    named = "model.layers.3.mlp.gate_up_proj"
    assert (
        quantized_of(
            _compressed([named], {"targets": ["Linear"], "weights": INT4}), "compressed-tensors"
        ).of_linear(GATE_UP)
        is None
    )
    awq = {"bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": [named]}
    assert quantized_of(awq, "awq").of_linear(GATE_UP) is None
    fp8 = {"activation_scheme": "dynamic", "ignored_layers": [named]}
    assert quantized_of(fp8, "fp8").of_linear(GATE_UP) is not None


def test_groups_of_different_formats_are_told_by_their_targets() -> None:
    section = _compressed(
        ["lm_head"],
        {
            "targets": ["re:.*self_attn.*"],
            "weights": FP8,
            "input_activations": TOKENS,
            "format": "float-quantized",
        },
        {"targets": ["Linear"], "weights": INT4, "format": "pack-quantized"},
        form="mixed-precision",
    )
    quantized = quantized_of(section, "compressed-tensors")
    told = quantized.of_linear(QKV), quantized.of_linear(GATE_UP)
    assert [kind and kind.name for kind in told] == ["fp8", "packed"]
    with pytest.raises(ConfigError, match="no experts in packed a group, of a file in another format"):
        quantized.of_experts(EXPERTS)


def test_a_module_in_no_group_ends_the_server() -> None:
    section = _compressed([], {"targets": ["re:.*self_attn.*"], "weights": INT4})
    with pytest.raises(ConfigError, match=r"no target for model\.layers\.3\.mlp\.gate_up_proj"):
        quantized_of(section, "compressed-tensors").of_linear(GATE_UP)


def test_gptqs_dynamic_expressions_end_or_change_a_modules_bits() -> None:
    dynamic = {r"-:.*self_attn.*": {}, r"+:.*\.3\.mlp.*": {"bits": 8}}
    assert _kinds({**GPTQ, "dynamic": dynamic}, "gptq") == (None, "gptq8", "gptq4")
    assert _kinds({**GPTQ, "dynamic": {r".*\.13\..*": {"bits": 8}}}, "gptq") == ("gptq4", "gptq4", "gptq4")


def test_awqs_names_are_looked_for_anywhere() -> None:
    awq = {
        "bits": 4,
        "group_size": 128,
        "zero_point": True,
        "modules_to_not_convert": ["mlp.gate", "layers.30"],
    }
    assert _kinds(awq, "awq") == ("awq4", None, "awq4")


def test_a_mixed_checkpoint_is_read_name_by_name() -> None:
    layers = {
        **{key: {"quant_algo": "FP8"} for key in QKV},
        f"{EXPERTS}.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        f"{EXPERTS}.0.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
    }
    section = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert _kinds(section, "modelopt_mixed") == ("fp84", None, "nvfp44")


def test_mxfp4_is_of_experts_alone() -> None:
    assert _kinds({"quant_method": "mxfp4"}, "mxfp4") == (None, None, "mxfp44")


def test_a_method_of_unknown_sizes_is_an_obstacle_and_no_number() -> None:
    with pytest.raises(Unsupported, match="how large weights of gguf are"):
        quantized_of({"quant_method": "gguf"}, "gguf")
    model = model_config({**TINY, "quantization_config": {"quant_method": "bitsandbytes"}})
    assert model.obstacles == (
        "quantization_config: how large weights of bitsandbytes are is not known here",
    )


def test_a_known_format_without_kernels_here_is_sized_and_not_computed() -> None:
    model = model_config({**TINY, "quantization_config": GPTQ})
    assert model.obstacles == ()
    assert model.uncomputed == ("quantization_config: this runtime has no layers in gptq a group",)


@pytest.mark.parametrize(
    ("method", "section"),
    [
        ("gptq", {**GPTQ, "bits": "4"}),
        ("gptq", {**GPTQ, "group_size": 0}),
        ("gptq", {**GPTQ, "dynamic": ["-:.*"]}),
        ("awq", {"bits": 4, "group_size": 2**40, "zero_point": True}),
        ("fp8", {"weight_block_size": [128]}),
        ("fp8", {"weight_block_size": [128, -1]}),
        ("compressed-tensors", _compressed([], {"targets": "Linear", "weights": INT4})),
        ("compressed-tensors", _compressed([], {"targets": ["Linear", 1], "weights": INT4})),
        ("compressed-tensors", {"config_groups": {"a": 1}}),
        ("modelopt_mixed", {"quantized_layers": {"a": "FP8"}}),
    ],
)
def test_a_member_that_is_no_such_thing_is_refused_by_name(method: str, section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="quantization_config: "):
        quantized_of({"quant_method": method, **section}, method)


TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 128,
}  # fmt: skip


def test_a_dense_model_may_be_in_what_sglang_has_no_experts_of() -> None:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False}
    inputs = {**TOKENS, "type": "int"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    section = {"quant_method": "compressed-tensors", **_compressed(["lm_head"], group, form="int-quantized")}
    model = model_config({**TINY, "quantization_config": section})
    assert layer_kind(model, 0) == layer_kind(model, 1)
    with pytest.raises(ConfigError, match="SGLang has no experts in int8 a row"):
        model.quantized.of_experts(EXPERTS)


def test_a_language_model_inside_another_is_named_without_its_wrapper() -> None:
    """As Qwen3.5 lists the gates of its recurrent layers, which are too narrow for a block."""
    listed = [f"model.language_model.layers.3.linear_attn.in_proj_{one}" for one in ("a", "b")]
    section = {
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": listed,
    }
    section = dict(as_served(section, called_in("qwen3_5") or ()))
    gates = [f"model.layers.3.linear_attn.in_proj_{one}" for one in ("b", "a")]
    assert quantized_of(section, "fp8").of_linear(gates) is None
    assert quantized_of(section, "fp8").of_linear(["model.layers.3.linear_attn.in_proj_qkv"]) is not None


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"quant_algo": "FP8"}, Kind("fp8", "tensor", is_static=True, widens="modelopt")),
        ({"quant_algo": "fp8_pb_wo"}, Kind("fp8", "block", (128, 128))),
        ({"quant_algo": "FP8_BLOCK_SCALES", "group_size": 64}, Kind("fp8", "block", (64, 64))),
        ({"quant_algo": "MXFP8"}, Kind("mxfp8")),
        ({"quant_algo": "NVFP4", "group_size": 32}, Kind("nvfp4", group=32)),
        ({"quant_algo": "NVFP4_AWQ"}, None),
        ({"quant_algo": "W4A16_NVFP4"}, Kind("nvfp4", group=16, has_inputs=False)),
        ({"quant_algo": "INT8"}, None),
        ({}, None),
    ],
)
def test_a_matrix_of_a_mixed_checkpoint_has_the_kind_of_its_algorithm(
    told: dict[str, Any], kind: Kind | None
) -> None:
    names = [one.replace("model.", "model.language_model.", 1) for one in QKV]
    for section in (dict.fromkeys(QKV, told), dict.fromkeys(names, told)):
        quantized = quantized_of({"quantized_layers": section}, "modelopt_mixed")
        assert quantized.of_linear(QKV) == kind
        assert quantized.of_linear(GATE_UP) is None


def test_a_mixed_checkpoint_that_names_nothing_is_fp8_with_experts_of_four_bits() -> None:
    quantized = quantized_of({"quant_method": "w4afp8"}, "modelopt_mixed")
    assert quantized.of_linear(QKV) == Kind("fp8", "block")
    assert quantized.of_experts(EXPERTS) == Kind("w4afp8", group=128)


def test_a_matrix_that_is_run_as_one_is_of_one_kind() -> None:
    told = {QKV[0]: {"quant_algo": "FP8"}, QKV[1]: {"quant_algo": "NVFP4"}, QKV[2]: {"quant_algo": "FP8"}}
    with pytest.raises(ConfigError, match="are of several kinds, and run as one"):
        quantized_of({"quantized_layers": told}, "modelopt_mixed").of_linear(QKV)
    up, down = f"{EXPERTS}.0.up_proj", f"{EXPERTS}.0.down_proj"
    experts = {up: {"quant_algo": "FP8"}, down: {"quant_algo": "NVFP4"}}
    with pytest.raises(ConfigError, match=r"the experts of .* are of several kinds"):
        quantized_of({"quantized_layers": experts}, "modelopt_mixed").of_experts(EXPERTS)


@pytest.mark.parametrize(
    ("hidden", "inner", "group"), [(256, 96, 32), (96, 256, 32), (256, 192, 64), (256, 256, 128)]
)
def test_awqs_groups_are_halved_until_both_sizes_are_of_them(hidden: int, inner: int, group: int) -> None:
    made = wna16(4, 128, hidden, inner)
    assert made == wna16(4, group, hidden, inner)
    assert group == 128 or made != wna16(4, 2 * group, 2048, 2048)


@pytest.mark.parametrize(
    ("group", "inner", "marlin"), [(128, 256, True), (128, 192, False), (32, 64, True), (16, 96, False)]
)
def test_awqs_experts_of_sizes_that_marlin_does_not_take_have_groups_of_32_at_least(
    group: int, inner: int, marlin: bool
) -> None:
    """check_moe_marlin_supports_layer: rows of 128, columns of 64 and of whole groups."""
    kind = Kind("awq", bits=8, group=group)
    found = format_of_experts(kind, Served(), 256, inner)
    assert found == (format_of(kind, Served()) if marlin else wna16(8, max(group, 32), 256, inner))
    assert format_of_experts(kind, Served(), 192, 256) == wna16(8, max(group, 32), 192, 256)


@pytest.mark.parametrize(("hidden", "inner"), [(256, 80), (80, 256)])
def test_awqs_groups_end_at_32(hidden: int, inner: int) -> None:
    with pytest.raises(ConfigError, match="ends at groups below 32"):
        wna16(4, 128, hidden, inner)


@pytest.mark.parametrize(
    ("told", "group"),
    [
        ({}, 16),
        ({"group_size": 32}, 32),
        ({"config_groups": {"group_0": {"weights": {"group_size": 32}}}}, 32),
        ({"group_size": 16, "config_groups": {"group_0": {"weights": {"group_size": 32}}}}, 16),
        ({"config_groups": {"group_0": {"weights": {}}}}, 16),
    ],
)
def test_modelopt_tells_its_groups_at_the_top_or_in_the_first_of_its_sections(
    told: dict[str, Any], group: int
) -> None:
    quantized = quantized_of({"quant_method": "modelopt", "quant_algo": "NVFP4", **told}, "modelopt_fp4")
    kind = quantized.of_linear(QKV)
    assert kind is not None and (kind.name, kind.group) == ("nvfp4", group)


@pytest.mark.parametrize(
    ("scheme", "inputs", "per", "is_static"),
    [
        ("per_tensor", {"is_dynamic": False}, "tensor", True),
        ("per_tensor", {"is_dynamic": True}, "tensor", False),
        ("per_channel", {"is_dynamic": True}, "row", False),
        ("per_channel", {}, "row", False),
    ],
)
def test_quarks_fp8_is_of_a_tensor_or_of_each_row(
    scheme: str, inputs: dict[str, Any], per: str, is_static: bool
) -> None:
    told = {"weight": {"dtype": "fp8_e4m3", "qscheme": scheme}, "input_tensors": inputs}
    kind = quantized_of({"quant_method": "quark", "global_quant_config": told}, "quark").of_linear(QKV)
    assert kind is not None and (kind.name, kind.per, kind.is_static) == ("fp8", per, is_static)


@pytest.mark.parametrize(
    "told",
    [
        {"global_quant_config": {"weight": {"dtype": "int4", "qscheme": "per_tensor"}}},
        {"global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_group"}}},
        {
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
            "layer_quant_config": {"a": {}},
        },
    ],
)
def test_quarks_other_formats_are_named(told: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="quark"):
        quantized_of({"quant_method": "quark", **told}, "quark")


@pytest.mark.parametrize(
    ("weights", "kind"),
    [
        ({"num_bits": 4, "strategy": "tensor_group", "group_size": 16}, "nvfp4_packed"),
        ({"num_bits": 4, "strategy": "tensor_group", "group_size": 32}, None),
        ({"num_bits": 4, "strategy": "group", "group_size": 32}, "mxfp4"),
        ({"num_bits": 4, "strategy": "group", "group_size": 64}, None),
        ({"num_bits": 6, "strategy": "channel"}, None),
    ],
)
def test_four_bits_in_groups_of_16_are_nvfp4_and_of_32_mxfp4(
    weights: dict[str, Any], kind: str | None
) -> None:
    group = {"targets": ["Linear"], "weights": {"type": "float", **weights}}
    section = _compressed([], group, form="nvfp4-pack-quantized")
    if kind is None:
        with pytest.raises(Unsupported, match="unknown here"):
            quantized_of(section, "compressed-tensors")
    else:
        found = quantized_of(section, "compressed-tensors").of_experts(EXPERTS)
        assert found is not None and found.name == kind


def test_a_block_has_the_size_that_is_told_and_ends_without_one() -> None:
    weights = {**FP8, "strategy": "block", "block_structure": [64, 32]}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": TOKENS}
    section = _compressed([], group, form="float-quantized")
    found = quantized_of(section, "compressed-tensors").of_linear(QKV)
    assert found is not None and (found.per, found.block) == ("block", (64, 32))
    del weights["block_structure"]
    with pytest.raises(ConfigError, match="strategy 'block' and block_structure go together"):
        quantized_of(section, "compressed-tensors")


def test_a_target_that_is_a_name_stands_for_itself_alone() -> None:
    name = "model.layers.3.self_attn.qkv_proj"
    for target in (
        name,
        name.replace("_attn", ".attn"),
        name.removesuffix("_proj"),
        name.removeprefix("model."),
    ):
        groups = (
            {"targets": [target], "weights": FP8, "format": "float-quantized"},
            {
                "targets": ["Linear"],
                "weights": INT4,
            },
        )
        found = quantized_of(_compressed([], *groups), "compressed-tensors").of_linear([name])
        assert found is not None and (found.name == "fp8") is (target == name)


def test_int8_in_blocks_is_of_128_rows_and_columns_where_nobody_says() -> None:
    for told, block in (({}, (128, 128)), ({"weight_block_size": [64, 32]}, (64, 32))):
        section = {"quant_method": "blockwise_int8", "activation_scheme": "dynamic", **told}
        assert quantized_of(section, "blockwise_int8").of_linear(QKV) == Kind("int8", "block", block)


def test_a_layers_experts_are_told_once_of_hundreds() -> None:
    """A file has a line of each, and its first ones stand for all that are alike."""
    told = {f"{EXPERTS}.{at}.up_proj": {"quant_algo": "NVFP4"} for at in range(512)}
    assert len(quantized_of({"quantized_layers": told}, "modelopt_mixed").names) == 1
    told[f"{EXPERTS}.300.up_proj"] = {"quant_algo": "FP8"}
    with pytest.raises(ConfigError, match=r"the experts of .* are of several kinds"):
        quantized_of({"quantized_layers": told}, "modelopt_mixed").of_experts(EXPERTS)
