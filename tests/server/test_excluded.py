"""What a quantized checkpoint leaves plain, name by name, as SGLang 0.5.12 to 0.5.23 read its lists."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.decoders.wrappers import WRAPPERS, as_listed, text_part
from runtime.server.errors import ConfigError
from runtime.server.excluded import Excluded, excluded_of
from runtime.server.layer_kinds import layer_kind
from tests.runtime.families import config_json, make_reference

V3 = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "vocab_size": 128, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
ATTENTION = "model.layers.3.self_attn"
QKV = [f"{ATTENTION}.{one}_proj" for one in "qkv"]
DOWN = [f"{ATTENTION}.q_a_proj", f"{ATTENTION}.kv_a_proj_with_mqa"]


def _modelopt(*listed: str) -> Excluded:
    return excluded_of({"exclude_modules": list(listed)}, "modelopt_fp4")


def _fp8(*listed: str) -> Excluded:
    return excluded_of({"modules_to_not_convert": list(listed)}, "fp8")


@pytest.mark.parametrize(
    ("listed", "parts", "plain"),
    [
        ("lm_head", ["lm_head"], True),
        ("lm_head", QKV, False),
        ("model.layers.3.self_attn*", QKV, True),
        ("model.layers.3.self_attn*", DOWN, True),
        ("model.layers.3.self_attn*", ["model.layers.30.self_attn.o_proj"], False),
        ("model.layers.3*", ["model.layers.30.self_attn.o_proj"], True),
        ("*self_attn*o_proj", [f"{ATTENTION}.o_proj"], True),
        ("*o_proj*self_attn*", [f"{ATTENTION}.o_proj"], False),
        ("self*", QKV, True),
        ("*_proj", QKV, True),
        ("model.layers.3", QKV, True),
        ("self_attn", QKV, True),
        ("layers.3.self_attn", QKV, True),
        ("model.layers.3.self_attn.qkv_proj", QKV, True),
        ("model.layers.3.self", QKV, False),
        ("mlp.gate", ["model.layers.3.mlp.gate_proj", "model.layers.3.mlp.up_proj"], False),
        ("model.layers.0.self_attn.kv_b_proj", [f"{ATTENTION}.kv_b_proj"], True),
        ("model.layers.0.self_attn.o_proj", [f"{ATTENTION}.o_proj"], False),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa", DOWN, True),
    ],
)
def test_modelopts_lists(listed: str, parts: list[str], plain: bool) -> None:
    assert _modelopt(listed).linear(parts) is plain


@pytest.mark.parametrize(
    ("listed", "parts", "plain"),
    [
        ("layers.3.self_attn", QKV, True),
        ("model.layers.3", QKV, True),
        ("model.layers.3.", QKV, True),
        ("o_proj", [f"{ATTENTION}.o_proj"], True),
        ("model.layers.3.self_attn*", QKV, False),
        ("model.layers.3.self_attn.qkv_proj", QKV, False),
        ("model.layers.0.self_attn.kv_b_proj", [f"{ATTENTION}.kv_b_proj"], False),
        ("mlp.gate", ["model.layers.3.mlp.gate_proj", "model.layers.3.mlp.up_proj"], False),
    ],
)
def test_fp8_lists_name_modules_and_no_patterns(listed: str, parts: list[str], plain: bool) -> None:
    assert _fp8(listed).linear(parts) is plain


@pytest.mark.parametrize("make", [_modelopt, _fp8])
def test_part_of_what_is_run_as_one_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"self_attn\.v_proj only some are excluded"):
        make(QKV[0], QKV[1]).linear(QKV)
    assert make(*QKV).linear(QKV)


def test_an_expert_that_is_named_makes_its_layers_plain_in_fp8_alone() -> None:
    named, layer = "model.layers.3.mlp.experts.7.up_proj", "model.layers.3.mlp.experts"
    assert _fp8(named).experts(layer) and not _modelopt(named).experts(layer)
    assert _modelopt("model.layers.3.mlp*").experts(layer)
    assert not _fp8("model.layers.30.mlp.experts").experts(layer)


def test_each_method_has_keys_of_its_own() -> None:
    section = {"ignore": ["a"], "modules_to_not_convert": ["b"], "exclude_modules": ["c"]}
    found = {
        method: excluded_of(section, method).names for method in ("modelopt_fp8", "modelopt_fp4", "mxfp4")
    }
    assert found == {"modelopt_fp8": ("a",), "modelopt_fp4": ("a",), "mxfp4": ()}
    assert excluded_of({"ignored_layers": ["d"], **section}, "fp8").names == ("d", "model.d")


@pytest.mark.parametrize(
    ("listed", "told"),
    [("lm_head", "a list of modules is needed"), ([1], "a list of modules is needed"), (["re:.*"], None)],
)
def test_what_is_no_list_of_names_is_refused(listed: Any, told: str | None) -> None:
    if told is None:
        assert excluded_of({"ignore": listed}, "modelopt_fp8").patterns == ("re:.*",)
        return
    with pytest.raises(ConfigError, match=told):
        excluded_of({"ignore": listed}, "modelopt_fp8")


def test_an_expression_that_is_not_followed_is_refused_when_the_list_is_read() -> None:
    with pytest.raises(ConfigError, match="is not followed here"):
        excluded_of({"ignore": ["lm_head", "re:(?=a)"]}, "compressed-tensors")


def _obstacles(*listed: str, **changes: Any) -> tuple[str, ...]:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": list(listed)}
    model = model_config({**V3, **changes, "quantization_config": section})
    return (*model.obstacles, *model.uncomputed)


def test_plain_experts_and_a_quantized_head_are_not_computed() -> None:
    assert _obstacles("lm_head") == ()
    assert [why[:40] for why in _obstacles()] == ["quantization_config: lm_head is quantize"]
    assert _obstacles(tie_word_embeddings=True) == ()
    [why] = _obstacles("lm_head", "model.layers.3.mlp*")
    assert "model.layers.3.mlp.experts are excluded" in why
    assert _obstacles("lm_head", "model.layers.0.mlp*") == ()  # dense


@pytest.mark.parametrize("listed", ["model.layers.[0-9].mlp", "(a+)+*", "mlp|self_attn"])
def test_a_pattern_beyond_a_star_is_an_obstacle(listed: str) -> None:
    assert _obstacles(listed) == (f"quantization_config: {listed!r} is excluded: only * is told from a name",)


def test_half_of_what_is_run_as_one_is_an_obstacle() -> None:
    [why] = _obstacles("lm_head", "model.layers.2.self_attn.q_a_proj")
    assert why.startswith("quantization_config: of model.layers.2.self_attn.q_a_proj, ")
    assert _obstacles("lm_head", "model.layers.2.self_attn.q_b_proj") == ()
    both = ("model.layers.2.self_attn.q_a_proj", "model.layers.2.self_attn.kv_a_proj_with_mqa")
    assert _obstacles("lm_head", *both) == ()


def test_layers_that_are_kept_alike_are_of_one_kind() -> None:
    section = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "*layers.2.self_attn*"],
    }
    model = model_config({**V3, "quantization_config": section})
    assert [layer_kind(model, layer)[:2] for layer in range(4)] == [("dense", "full")] * 3 + [("moe", "full")]
    assert layer_kind(model, 0) == layer_kind(model, 1) != layer_kind(model, 2)


@pytest.mark.parametrize("key", ["ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"])
def test_a_list_of_a_multimodal_checkpoint_is_read_as_its_text_models(key: str) -> None:
    listed = ["model.language_model.layers.0.mlp", "language_model.model.layers.1.mlp"]
    listed += ["language_model.lm_head", "vision_tower.blocks.0", "language_model.norm"]
    hf = {"model_type": "qwen3_5", "text_config": {}, "quantization_config": {key: listed, "other": listed}}
    meant, read = as_listed(WRAPPERS["qwen3_5"], text_part(WRAPPERS["qwen3_5"], hf))
    others = ["lm_head", "vision_tower.blocks.0", "model.norm"]
    assert meant["quantization_config"] == {
        key: ["model.layers.0.mlp", "model.layers.1.mlp", *others],
        "other": listed,
    }
    assert read["quantization_config"][key] == ["model.layers.0.mlp", "elsewhere.layers.1.mlp", *others]


@pytest.mark.parametrize(
    ("name", "stem", "is_read"),
    [
        ("gemma3", "language_model.model.", True),
        ("gemma3", "model.language_model.", False),
        ("qwen3_5", "model.language_model.", True),
        ("qwen3_5", "language_model.model.", False),
        ("qwen3_5", "model.", False),
        ("qwen3_vl", "model.language_model.", False),
        ("qwen3_vl", "language_model.", True),
        ("glm4v", "model.", True),
        ("glm4v", "model.language_model.", False),
        ("internvl_chat", "language_model.model.", False),
    ],
)
def test_a_matrix_that_sglang_would_not_look_for_is_named(name: str, stem: str, is_read: bool) -> None:
    hf = config_json(make_reference(name))
    section = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
    listed = {"modules_to_not_convert": [f"{stem}layers.0.mlp.down_proj", f"{stem}layers.0.mlp.gate"]}
    model = model_config({**hf, "quantization_config": {**section, **listed}})
    said = [one for one in model.obstacles if "is told apart: SGLang's class has another name" in one]
    assert bool(said) != is_read
    if is_read:
        assert model.quantized.of_linear(["model.layers.0.mlp.down_proj"]) is None


@pytest.mark.parametrize("name", ["qwen3_vl", "gemma3"])
@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "modules_to_not_convert"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "ignore"),
    ],
)
def test_a_part_of_what_runs_as_one_is_named_where_sglang_would_not_look_for_it(
    section: dict[str, Any], key: str, name: str
) -> None:
    listed = {key: ["lm_head", "model.language_model.layers.0.self_attn.q_proj"]}
    model = model_config({**config_json(make_reference(name)), "quantization_config": {**section, **listed}})
    [said] = [one for one in model.obstacles if "only some are excluded" in one]
    assert "q_proj" in said and said.endswith("as SGLang's class has other names")


@pytest.mark.parametrize(
    ("method", "list_", "names", "doubted"),
    [
        ("compressed-tensors", "ignore", ("q_proj",), True),
        ("compressed-tensors", "ignore", ("q_proj", "k_proj", "v_proj"), False),
        ("compressed-tensors", "ignore", ("q_proj", "qkv_proj"), False),
        ("fp8", "modules_to_not_convert", ("q_proj",), True),
        ("fp8", "modules_to_not_convert", ("q_proj", "qkv_proj"), True),
        ("fp8", "modules_to_not_convert", ("q_proj", "k_proj", "v_proj"), False),
    ],
)
def test_what_runs_as_one_is_excluded_whole_or_named(
    method: str, list_: str, names: tuple[str, ...], doubted: bool
) -> None:
    listed = [f"model.layers.0.self_attn.{name}" for name in names]
    said = [*excluded_of({list_: listed}, method).doubts(2)]
    assert [one for one in said if "only some are excluded" in one] == (said if doubted else [])
    assert bool(said) == doubted


def test_layers_that_are_kept_alike_are_told_apart_from_others() -> None:
    kept = _fp8("model.layers.3.self_attn.o_proj")
    assert kept.of_layer(3) != kept.of_layer(2) == kept.of_layer(1)
    assert kept.of_layer(3).count(True) == 1
    assert Excluded().of_layer(3) == ()


def test_an_expression_or_a_bracket_of_others_is_no_obstacle() -> None:
    assert [*excluded_of({"ignore": ["re:.*mlp\\.(gate|up)_x"]}, "compressed-tensors").doubts(4)] == []
    assert [*_fp8("model.layers[3]").doubts(4)] == []
    assert len([*_modelopt("model.layers[3]").doubts(4)]) == 1


@pytest.mark.parametrize("method", ["modelopt_fp8", "modelopt_fp4", "modelopt_mixed"])
@pytest.mark.parametrize("key", ["ignore", "exclude_modules"])
def test_modelopt_lists_what_it_leaves_under_one_of_two_names(method: str, key: str) -> None:
    found = excluded_of({key: ["lm_head", "model.layers.3.*"]}, method)
    assert found.one(f"{ATTENTION}.o_proj") and not found.one("model.layers.2.self_attn.o_proj")


def test_half_of_what_is_run_as_one_is_no_doubt_where_names_are_looked_for_anywhere() -> None:
    """AWQ leaves a fused matrix plain where its own name is listed, or all of its parts'."""
    listed = excluded_of({"modules_to_not_convert": ["q_proj"]}, "awq")
    assert [*listed.doubts(2)] == [] and not listed.linear(QKV)
