"""How a checkpoint stores its weights, as far as a MoE backend or the gate looks at it."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.server.checkpoint import Checkpoint
from runtime.server.declared import packs_experts
from runtime.server.families import DEEPSEEK4


def is_mxfp8_modelopt(model: Checkpoint) -> bool:
    return str(model.mapping("quantization_config").get("quant_algo", "")).upper() == "MXFP8"


def has_int4_experts(model: Checkpoint) -> bool:
    """Kimi's: groups of 32 weights of four bits, by compressed-tensors."""
    groups = _section(model.mapping("quantization_config"), "config_groups")
    weights = _section(_section(groups, "group_0"), "weights")
    wanted = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}
    return all(weights.get(name) == value for name, value in wanted.items())


def has_fp4_experts(model: Checkpoint) -> bool:
    """DeepSeek V4's are, unless the weights' headers say otherwise: SGLang asks those, and we what stands in
    config.json for others to read."""
    section = model.mapping("quantization_config")
    declared = section.get("routed_experts_quant_method") or section.get("store_dtype")
    stored = section.get("expert_dtype") or model.get("expert_dtype")
    return declared == "mxfp4" if declared else model.architecture in DEEPSEEK4 and stored != "fp8"


def has_nvfp4_experts(model: Checkpoint) -> bool:
    """A mixed checkpoint of FP8 whose experts are NVFP4."""
    section = model.mapping("quantization_config")
    mixed = section.get("quant_algo") == "MIXED_PRECISION" and section.get("moe_quant_algo") == "NVFP4"
    return mixed and bool(section.get("group_size"))


def has_w4a16_experts(model: Checkpoint) -> bool:
    layers = _section(model.mapping("quantization_config"), "quantized_layers")
    kinds = (_section(layers, name).get("quant_algo") for name in layers if ".experts." in str(name))
    return any(str(kind).upper() == "W4A16_NVFP4" for kind in kinds)


def is_block_fp8_of_32(model: Checkpoint) -> bool:
    """What MXFP8's GEMMs take as it is."""
    section = model.mapping("quantization_config")
    block = section.get("weight_block_size")
    by_32 = isinstance(block, list) and len(block) == 2 and block[1] == 32
    return by_32 and section.get("scale_fmt") == "ue8m0"


def packs_mxfp4(model: Checkpoint) -> bool:
    return "mxfp4" in _packed_formats(model)


def packs_nvfp4(model: Checkpoint) -> bool:
    return "nvfp4" in _packed_formats(model)


def _packed_formats(model: Checkpoint) -> str:
    section = _section(model.text, "quantization_config") or model.mapping("quantization_config")
    groups = _section(section, "config_groups")
    formats = [section.get("format"), *(_section(groups, name).get("format") for name in groups)]
    return " ".join(map(str, formats))


def _section(of: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def packs_nvfp4_beside_mxfp8(model: Checkpoint) -> bool:
    """MiniMax-M3.1."""
    return packs_experts(model.mapping("quantization_config"))
