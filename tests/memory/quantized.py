"""The first layers of published checkpoints in each of the formats that publishers make of them. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.memory.checkpoints import DATA

RECORDED = DATA / "sglang_quantized.json"
_PUBLISHED = DATA / "published_families.json"
_IGNORED = ["lm_head"]
_WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
_ROW = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
_WHOLE = {**_WEIGHTS, "strategy": "tensor"}
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
_FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
_BLOCKS = {**_WEIGHTS, "strategy": "block", "block_structure": [128, 128]}


def _compressed(form: str, weights: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    told = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed"}
    return {**told, "config_groups": {"group_0": group}, "ignore": _IGNORED}


SECTIONS: dict[str, dict[str, Any]] = {
    "fp8 a row": _compressed("float-quantized", _WEIGHTS, _ROW),
    "fp8 a tensor": _compressed("float-quantized", _WHOLE, _WHOLE),
    "fp8 a block": _compressed("float-quantized", _BLOCKS, {**_ROW, "strategy": "group", "group_size": 128}),
    "int8": _compressed("int-quantized", {**_WEIGHTS, "type": "int"}, {**_ROW, "type": "int"}),
    "int4": _compressed("pack-quantized", _INT4, None),
    "nvfp4": _compressed("nvfp4-pack-quantized", _FP4, {**_FP4, "dynamic": "local"}),
    "nvfp4 of weights": _compressed("nvfp4-pack-quantized", _FP4, None),
    "modelopt fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": _IGNORED},
    "modelopt nvfp4": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": _IGNORED,
    },
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8 blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
}
# So many layers of each, its mixers in this order, and what of its lists is told otherwise.
FIRST: dict[str, dict[str, Any]] = {
    "ibm-granite/granite-4.0-h-small": {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]},
    "LiquidAI/LFM2-1.2B": {"num_hidden_layers": 3, "full_attn_idxs": [2]},
    "LiquidAI/LFM2-8B-A1B": {
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
        "layer_types": ["conv", "conv", "full_attention"],
    },
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": {
        "num_hidden_layers": 3,
        "linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [3]},
    },
    "tiiuae/Falcon-H1-34B-Instruct": {"num_hidden_layers": 1},
    "arcee-ai/Trinity-Mini": {
        "num_hidden_layers": 3,
        "num_experts": 8,
        "layer_types": [*["sliding_attention"] * 2, "full_attention"],
    },
}


# What of each SGLang's class has plain whatever is listed: its own lists have to say so.
_PLAIN = {
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "kv_b_proj",
    "tiiuae/Falcon-H1-34B-Instruct": "mamba",
    "arcee-ai/Trinity-Mini": "mlp.experts",
}


def config_of(name: str, section: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_PUBLISHED.read_text())[name]
    first = dict(FIRST[name])
    if "linear_attn_config" in first:
        first["linear_attn_config"] = {**told["linear_attn_config"], **first["linear_attn_config"]}
    plain = _PLAIN.get(name)
    listed = {} if plain is None else _listed(SECTIONS[section], plain)
    return {**told, **first, "quantization_config": {**SECTIONS[section], **listed}}


def _listed(section: Mapping[str, Any], plain: str) -> dict[str, Any]:
    method = section["quant_method"]
    if method == "gptq":
        return {"dynamic": {f"-:.*{plain}.*": {}}}
    if method in ("compressed-tensors", "modelopt"):
        spelled = f"re:.*{plain}.*" if method == "compressed-tensors" else f"*{plain}*"
        return {"ignore": [*_IGNORED, spelled]}
    return {"modules_to_not_convert": [plain]}
