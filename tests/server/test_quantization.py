"""dtype, the server's argument and the model's own method, as SGLang's code answers."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.quantization import model_quantization
from runtime.server.releases import release_named
from tests.server.asking import FP8, MODELOPT_FP8, MXFP4, NVFP4, PACKED, model, server

_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


@pytest.mark.parametrize(
    ("declared", "asked", "dtype"),
    [
        ("bfloat16", "auto", "bfloat16"),
        ("float16", "auto", "float16"),
        ("float32", "auto", "float16"),
        ("float8_e4m3fn", "auto", "float16"),
        ("torch.bfloat16", "auto", "bfloat16"),
        (None, "auto", "float16"),
        ("float16", "bfloat16", "bfloat16"),
        ("bfloat16", "half", "float16"),
        ("bfloat16", "float", "float32"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_dtype(declared: str | None, asked: str, dtype: str) -> None:
    assert server(model("qwen3", dtype=declared), dtype=asked).dtype == dtype


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_model_is_built_in_the_dtype_that_its_config_names(name: str) -> None:
    named = {**model("qwen3").hf, "dtype": None, name: "torch.float16"}
    assert Checkpoint(named).model_config().dtype == "float16" == server(Checkpoint(named)).dtype
    assert Checkpoint({**named, name: None}).model_config().dtype == "bfloat16"


@pytest.mark.parametrize(
    ("declared", "method"),
    [
        (None, None),
        (FP8, "fp8"),
        (NVFP4, "modelopt_fp4"),
        ({"quant_algo": "nvfp4"}, "modelopt_fp4"),
        (MODELOPT_FP8, "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "modelopt_mixed"),
        ({"quant_method": "modelopt"}, "modelopt"),
        ({"weight_block_size": [128, 128]}, None),
    ],
)
def test_a_model_is_built_for_the_weights_of_its_checkpoint(
    declared: dict[str, Any] | None, method: str | None
) -> None:
    checkpoint = model("qwen3", declared)
    assert checkpoint.quantization == method == checkpoint.model_config().checkpoint_quantization
    block = (128, 128) if declared and "weight_block_size" in declared else None
    assert checkpoint.model_config().quantization_block == block


@pytest.mark.parametrize(
    ("asked", "declared"),
    [
        *(("modelopt_fp8", "modelopt"), ("modelopt_fp4", "modelopt"), ("modelopt_mixed", "modelopt")),
        *(("w8a8_int8", "compressed-tensors"), ("w8a8_int8", "compressed_tensors")),
        *(("w8a8_fp8", "compressed-tensors"), ("w8a8_fp8", "compressed_tensors")),
        ("petit_nvfp4", "modelopt"),
    ],
)
def test_an_argument_that_goes_with_the_checkpoints_method(asked: str, declared: str) -> None:
    found = server(model("qwen3", {"quant_method": declared}), 12, "H200", quantization=asked)
    assert (found.quantization, found.model_quantization) == (asked, asked)


@pytest.mark.parametrize(
    "method",
    [
        *("fp8", "mxfp8", "blockwise_int8", "modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed"),
        *("nvfp4_online", "w8a8_int8", "w8a8_fp8", "awq", "awq_marlin", "bitsandbytes", "gguf", "gptq"),
        *("gptq_marlin", "moe_wna16", "compressed-tensors", "qoq", "w4afp8", "petit_nvfp4", "fbgemm_fp8"),
        *("quark", "quark_mxfp4", "auto-round", "modelslim", "quark_int4fp8_moe", "mxfp4"),
    ],
)
def test_a_method_that_sglang_registers(method: str) -> None:
    release = release_named("0.5.14").release
    assert model_quantization(method, model("qwen3"), release) == method


def test_nemotrons_method_may_stand_in_modelopts_own_file() -> None:
    file = {"quantization": {"quant_algo": "NVFP4"}}
    found = server(Checkpoint(model("nemotron").hf, file))
    assert (found.quantization, found.model_quantization) == ("modelopt_fp4", "modelopt_fp4")


def test_gemma_of_float32_runs_in_bfloat16() -> None:
    assert server(model("gemma", dtype="float32")).dtype == "bfloat16"


def test_mxfp4_of_gpt_oss_runs_in_bfloat16_whatever_is_asked() -> None:
    assert server(model("gpt_oss", MXFP4, dtype=None), dtype="float16").dtype == "bfloat16"
    assert server("gpt_oss", dtype="float16").dtype == "float16"


def test_mistral_large_runs_in_bfloat16_whatever_is_asked() -> None:
    large = model("deepseek", architectures=["MistralLarge3ForCausalLM"])
    assert server(large, dtype="float16").dtype == "bfloat16"


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match="--dtype fp12"):
        server("qwen3", dtype="fp12")


@pytest.mark.parametrize(
    ("checkpoint", "version", "gpu", "argument", "own"),
    [
        (model("qwen3_moe", FP8), 23, "H200", None, "fp8"),
        (model("qwen3_moe", FP8), 23, "B200", "fp8", "fp8"),
        (model("qwen3_moe", FP8), 12, "GB300", "fp8", "fp8"),
        (model("qwen3_moe", FP8), 23, "RTX PRO 6000", None, "fp8"),
        (model("qwen3", FP8), 23, "B200", None, "fp8"),
        (model("deepseek", FP8), 23, "B200", "fp8", "fp8"),
        (model("kimi_k2", PACKED), 23, "B200", "compressed-tensors", "compressed-tensors"),
        (model("glm4", PACKED), 13, "B200", "compressed-tensors", "compressed-tensors"),
        (model("longcat", FP8), 15, "B200", None, "fp8"),
        (model("longcat", FP8), 16, "B200", "fp8", "fp8"),
        (model("minimax", NVFP4), 23, "B200", None, "modelopt_fp4"),
        (model("llama4", MODELOPT_FP8), 23, "B200", None, "modelopt_fp8"),
        (model("qwen3_moe", NVFP4), 23, "B200", "modelopt_fp4", "modelopt_fp4"),
        (model("nemotron", NVFP4), 23, "H200", "modelopt_fp4", "modelopt_fp4"),
        (model("nemotron", MODELOPT_FP8), 12, "RTX PRO 6000", "modelopt_fp8", "modelopt_fp8"),
        (model("nemotron"), 23, "B200", None, None),
        (model("gemma4", NVFP4), 12, "B200", None, "modelopt_fp4"),
        (model("gemma4", NVFP4), 13, "B200", "modelopt_fp4", "modelopt_fp4"),
        (model("gemma4", NVFP4), 13, "H200", None, "modelopt_fp4"),
        (model("qwen3_moe", _AWQ), 23, "H200", None, "awq_marlin"),
        (model("qwen3_moe", _AWQ), 23, "B200", "awq", "awq"),
        (model("qwen3", _GPTQ), 20, "H200", None, "gptq_marlin"),
        (model("gpt_oss", MXFP4), 23, "B200", None, "mxfp4"),
    ],
)
def test_the_argument_and_the_models_own(
    checkpoint: Checkpoint, version: int, gpu: str, argument: str | None, own: str | None
) -> None:
    found = server(checkpoint, version, gpu)
    assert (found.quantization, found.model_quantization) == (argument, own)


@pytest.mark.parametrize(
    ("bits", "group", "zero", "own"),
    [(4, 128, True, "awq_marlin"), (8, 128, True, "awq"), (4, 100, True, "awq"), (4, 64, False, "awq")],
)
def test_awq_that_marlin_takes(bits: int, group: int, zero: bool, own: str) -> None:
    section = {"quant_method": "awq", "bits": bits, "group_size": group, "zero_point": zero}
    assert server(model("qwen3", section)).model_quantization == own
    assert server(model("qwen3", section), quantization="awq").model_quantization == "awq"


@pytest.mark.parametrize(
    "otherwise",
    [{"bits": 3}, {"sym": False}, {"group_size": 100}, {"is_marlin_format": True}, {"desc_act": None}],
)
def test_gptq_that_marlin_does_not_take_is_gone_since_0_5_20(otherwise: dict[str, Any]) -> None:
    told = {**_GPTQ, **otherwise}
    odd = model("qwen3", {name: value for name, value in told.items() if value is not None})
    assert server(model("qwen3", _GPTQ), 19).model_quantization == "gptq_marlin"
    assert server(odd, 19).model_quantization == "gptq"
    with pytest.raises(ConfigError, match=r"gptq: SGLang 0\.5\.20 has no such"):
        server(odd, 20)


def test_a_method_that_nobody_knows_is_refused() -> None:
    for found in ({"quantization_config": {"quant_method": "hqq"}}, {"quantization_config": {"bits": 4}}):
        with pytest.raises(ConfigError, match="has no such method"):
            server(model("qwen3", **found))
    with pytest.raises(ConfigError, match="quantization foo: "):
        server("qwen3", quantization="Foo")


def test_unquant_empties_the_argument_and_not_the_model() -> None:
    found = server(model("deepseek", FP8), quantization="unquant", speculative_algorithm="EAGLE")
    assert (found.quantization, found.model_quantization) == (None, "fp8")
    assert found.draft is not None and found.draft.quantization == "fp8"


@pytest.mark.parametrize(
    ("quantized", "asked", "since"),
    [
        (FP8, "modelopt_fp4", 18),
        (FP8, "nvfp4_online", 14),
        (MODELOPT_FP8, "nvfp4_online", 18),
    ],
)
def test_methods_that_go_together_since(quantized: dict[str, Any], asked: str, since: int) -> None:
    assert server(model("qwen3_moe", quantized), since, quantization=asked).quantization == asked


@pytest.mark.parametrize(
    ("quantized", "asked", "version"),
    [(FP8, "modelopt_fp4", 17), (FP8, "mxfp8", 23), (FP8, "modelopt_fp8", 23), (_AWQ, "fp8", 23)],
)
def test_another_method_than_the_checkpoints_is_refused(
    quantized: dict[str, Any], asked: str, version: int
) -> None:
    with pytest.raises(ConfigError, match=f"--quantization {asked}: the checkpoint is quantized by"):
        server(model("qwen3_moe", quantized), version, quantization=asked)


def test_modelopts_checkpoints_take_their_own_method_whatever_is_asked() -> None:
    found = server(model("qwen3_moe", NVFP4), gpu="H200", quantization="fp8")
    assert (found.quantization, found.model_quantization) == ("fp8", "modelopt_fp4")


_LAYERS = {"layers.0.mlp.experts.0": {"quant_algo": "NVFP4"}, "layers.0.attn": {"quant_algo": "FP8"}}
_MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}


@pytest.mark.parametrize(
    ("quantized", "version", "own"),
    [
        ({**_MIXED, "quantized_layers": _LAYERS}, 14, "w4afp8"),
        ({**_MIXED, "quantized_layers": _LAYERS}, 15, "modelopt_mixed"),
        ({**_MIXED, "quantized_layers": {"a": {"quant_algo": "W4A16_NVFP4"}}}, 15, "modelopt_mixed"),
        ({**_MIXED, "quantized_layers": {"a": {"quant_algo": "FP8"}}}, 15, "w4afp8"),
        ({**_MIXED, "quantized_layers": [1]}, 15, "w4afp8"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 17, "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 18, "mxfp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, 17, "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, 18, "modelopt"),
        ({"quant_algo": "NVFP4"}, 23, "modelopt_fp4"),
        ({"quantization": {"quant_algo": "FP8"}}, 23, "modelopt_fp8"),
    ],
)
def test_modelopts_algorithms(quantized: dict[str, Any], version: int, own: str) -> None:
    assert server(model("qwen3", quantized), version).model_quantization == own


def test_mixed_nemotron_was_known_by_its_name_before_0_5_15() -> None:
    assert server(model("nemotron", _MIXED), 14).quantization == "modelopt_mixed"
    assert server(model("nemotron", _MIXED), 15).quantization is None


def test_modelopts_own_file_tells_the_model_and_not_the_argument() -> None:
    plain = model("deepseek")
    found = server(Checkpoint(plain.hf, {"quantization": {"quant_algo": "NVFP4"}}))
    assert (found.quantization, found.model_quantization) == (None, "modelopt_fp4")


def test_nemotron_by_modelopt_needs_its_activation() -> None:
    with pytest.raises(ConfigError, match="mlp_hidden_act is 'silu'"):
        server(model("nemotron", NVFP4, mlp_hidden_act="silu"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("fp8", "quantization_config is 'fp8'"),
        ([1], "quantization_config is"),
        ({"quant_method": 8}, "quant_method is 8"),
    ],
)
def test_a_hostile_section_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        server(model("qwen3", quantization_config=value))


_OF = {"awq": _AWQ, "gptq": _GPTQ, "fp8": FP8, "mxfp4": MXFP4}


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ("moe_wna16", {"awq": "moe_wna16", "gptq": "moe_wna16"}),
        ("humming", {"awq": "humming", "gptq": "humming", "fp8": "humming"}),
        ("marlin", {"awq": "awq_marlin", "gptq": "gptq_marlin"}),
        ("awq_marlin", {"awq": "awq_marlin"}),
        ("gptq_marlin", {"gptq": "gptq_marlin"}),
        ("awq", {"awq": "awq"}),
        ("gptq", {"gptq": "gptq"}),
        ("fp8", {"fp8": "fp8"}),
    ],
)
def test_which_checkpoints_take_which_method(asked: str, own: dict[str, str]) -> None:
    for method, section in _OF.items():
        checkpoint = model("qwen3_moe" if method != "mxfp4" else "gpt_oss", section)
        if method in own:
            assert server(checkpoint, 19, "H200", quantization=asked).model_quantization == own[method]
        else:
            with pytest.raises(ConfigError, match=f"the checkpoint is quantized by {method}"):
                server(checkpoint, 19, "H200", quantization=asked)


@pytest.mark.parametrize(
    ("section", "argument"),
    [
        (NVFP4, "modelopt_fp4"),
        (MODELOPT_FP8, "modelopt_fp8"),
        ({"quant_method": "modelopt"}, "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "INT8"}, "modelopt_fp8"),
        (None, "modelopt_fp8"),
    ],
)
def test_nemotrons_modelopt_is_fp8_unless_its_algorithm_says_otherwise(
    section: dict[str, Any] | None, argument: str
) -> None:
    for version in (12, 23):
        assert server(model("nemotron", section), version, quantization="modelopt").quantization == argument


def test_a_draft_takes_its_own_method_where_a_target_is_refused() -> None:
    release, draft = release_named("0.5.23").release, Checkpoint({"quantization_config": FP8})
    assert model_quantization("awq", draft, release, draft=True) == "fp8"
    with pytest.raises(ConfigError, match="the checkpoint is quantized by fp8"):
        model_quantization("awq", draft, release)
    assert model_quantization("quark_mxfp4", draft, release) == "quark_mxfp4"
