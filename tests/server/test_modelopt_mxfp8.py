"""ModelOpt's MXFP8: what SGLang makes of its section, by release, and what it takes otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import Unsupported
from runtime.server.formats.kinds import Kind
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.server.asking import model, server

_SECTION: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 32}
_ATTENTION = "model.layers.0.self_attn"
_QKV = [f"{_ATTENTION}.{one}_proj" for one in "qkv"]
_SCHEME = {"type": "float", "num_bits": 8}


def _read(**told: Any) -> Any:
    return model("qwen3_moe", {**_SECTION, "exclude_modules": ["lm_head"], **told})


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    moe = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768, "num_hidden_layers": 2}
    return {**checkpoint.hf, **moe}


@pytest.mark.parametrize(
    ("told", "plain"),
    [
        ({}, False),
        ({"exclude_modules": [*_QKV, "lm_head"]}, True),
        ({"exclude_modules": ["lm_head"], "ignore": [*_QKV, "lm_head"]}, False),
        ({"exclude_modules": None, "modules_to_not_convert": [*_QKV, "lm_head"]}, True),
    ],
)
def test_of_its_lists_sglang_takes_the_first(told: dict[str, Any], plain: bool) -> None:
    found = Checkpoint(_config(_read(**told))).model_config()
    assert not found.obstacles and found.checkpoint_quantization == "mxfp8"
    assert found.quantized.of_linear(_QKV) == (None if plain else Kind("mxfp8"))
    assert found.quantized.of_experts("model.layers.0.mlp.experts") == Kind("mxfp8")


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (["lm_head", "model.layers.1.mlp.gate*"], None),
        (["lm_head*", f"{_ATTENTION}*"], "self_attn.q_proj is plain in the file, and not so in"),
        (["lm_head", f"{_QKV[0]}*"], "self_attn.q_proj"),
        (["lm_head", "model.layers.1.mlp.experts.*"], None),  # a part of which SGLang looks for
        (["lm_head", "*.1.mlp.experts.*"], "which knows no stars in lists of MXFP8"),
        ([], "lm_head is quantized in the file, and not so in SGLang's class"),
    ],
)
def test_stars_and_heads_are_not_as_its_lists_mean_them(listed: list[str], said: str | None) -> None:
    found = Checkpoint(_config(_read(exclude_modules=listed))).model_config()
    assert len(found.obstacles) == (said is not None)
    assert said is None or said in found.obstacles[0]


def test_other_groups_and_a_file_beside_alone_are_named() -> None:
    with pytest.raises(Unsupported, match="group_size is 16"):
        Checkpoint(_config(_read(group_size=16))).model_config()
    beside = Checkpoint(_config(model("qwen3_moe")), quant_file={"quantization": {"quant_algo": "MXFP8"}})
    with pytest.raises(Unsupported, match=r"hf_quant_config\.json alone tells of MXFP8"):
        beside.model_config()


@pytest.mark.parametrize(
    ("told", "keys"),
    [
        ({}, "bfloat16"),
        ({"kv_cache_scheme": _SCHEME}, "fp8_e4m3"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"kv_cache_quant_algo": "NVFP4", "kv_cache_scheme": _SCHEME}, "bfloat16"),
        ({"kv_cache_scheme": {"type": "int", "num_bits": 8}}, "bfloat16"),
    ],
)
def test_how_keys_are_stored_either_of_its_members_says(told: dict[str, Any], keys: str) -> None:
    assert server(_read(**told), 18, gpu="B200").kv_cache_dtype == keys
    assert server(_read(**told), 23, gpu="B200").kv_cache_dtype == keys


@pytest.mark.parametrize(
    ("release", "gpu", "more", "end"),
    [
        ("0.5.17", "B200", {}, "quant_algo is MXFP8: SGLang 0.5.17 takes it for FP8"),
        ("0.5.18", "B200", {}, None),
        ("0.5.23", "B200", {}, None),
        ("0.5.23", "H200", {}, "quantization mxfp8 needs sm100"),
    ],
)
def test_where_it_starts(release: str, gpu: str, more: Any, end: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_config(_read())))
    flags = ServerFlags(model_path=str(tmp_path), gpu=gpu, sglang_version=release, **more)
    found = resolve_deployment(flags, environ={})
    said = never_starts(found)
    assert said is None if end is None else said is not None and end in said
    assert release != "0.5.17" or "MXFP8 before 0.5.18" in found.shape.unknown
