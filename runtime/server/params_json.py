"""Mistral's own params.json: what SGLang makes of it, a config.json of other families.

srt/utils/hf_transformers/mistral_utils.py, the same in every release. A path's name alone says whether it is
read; what SGLang ends with is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported

Params = Mapping[str, Any]
FILE = "params.json"
_NAMES = ("mistral-large-3", "mistral-small-4", "leanstral")
_RENAMED = {
    "dim": "hidden_size", "norm_eps": "rms_norm_eps", "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size",
}  # fmt: skip
_TAKEN = {
    "model_type": ("model_type", "transformer"), "hidden_act": ("activation", "silu"),
    "tie_word_embeddings": ("tied_embeddings", False), "max_seq_len": ("max_seq_len", 128_000),
    "max_position_embeddings": ("max_position_embeddings", 128_000),
}  # fmt: skip
_OF_EXPERTS = {
    "route_every_n": "moe_layer_freq", "first_k_dense_replace": "first_k_dense_replace",
    "num_experts_per_tok": "num_experts_per_tok", "num_experts": "n_routed_experts",
    "expert_hidden_dim": "moe_intermediate_size", "routed_scale": "routed_scaling_factor",
    "num_shared_experts": "n_shared_experts", "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}  # fmt: skip
_OF_YARN = {
    "factor": "factor", "original_max_position_embeddings": "original_max_position_embeddings",
    "beta": "beta_fast", "alpha": "beta_slow", "apply_scale": "apply_yarn_scaling",
}  # fmt: skip
_BY_SOFTMAX = {"topk_method": None, "scoring_func": "softmax", "routing_method_type": 1}
_NO_EXPERTS = {
    "n_routed_experts": 1, "moe_layer_freq": 1, "n_shared_experts": 0, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 1, "moe_intermediate_size": 1, "routed_scaling_factor": 1.0,
}  # fmt: skip
_LATENT_DRAFT = ("kv_lora_rank", "q_lora_rank", "v_head_dim")


def is_read(path: str) -> bool:
    """Of a model's path as the server is given it."""
    name = path.lower()
    return any(one in name for one in _NAMES) or ("eagle" in name and "mistral" in name)


def config_of(params: Params, path: str) -> dict[str, Any]:
    """What SGLang goes by in place of a config.json."""
    told = {_RENAMED.get(name, name): value for name, value in params.items()}
    for name, (own, otherwise) in _TAKEN.items():
        told[name] = told.pop(own, otherwise)
    if told["max_position_embeddings"] is None:
        told["max_position_embeddings"] = 128_000
    quantization = _section(told, "quantization")
    if quantization:
        told["quantization_config"] = _quantized(quantization)
    told |= _layers(told, "eagle" in path.lower())
    if _section(told, "yarn"):
        told["rope_scaling"] = _yarn(told)
    return _with_images({name: value for name, value in told.items() if name not in _SPENT})


_SPENT = ("quantization", "yarn", "moe")


def _layers(told: Params, is_draft: bool) -> dict[str, Any]:
    experts, is_latent = _section(told, "moe"), any(told.get(one) is not None for one in _LATENT_DRAFT)
    if not experts and not (is_draft and is_latent):
        named = "MistralForCausalLMEagle" if is_draft else "MistralForCausalLM"
        return {"model_type": "mistral", "architectures": [named], "rope_is_neox_style": False}
    if experts and not experts.get("num_shared_experts"):
        raise Unsupported(f"{FILE}: experts without shared ones: what SGLang makes of it is not known here")
    scaling = _section(told, "llama_4_scaling")
    missing = [one for one in ("original_max_position_embeddings", "beta") if one not in scaling]
    if experts and missing:
        raise ConfigError(f"{FILE}: llama_4_scaling without {missing[0]}, which SGLang asks for")
    of_experts = {new: experts[one] for one, new in _OF_EXPERTS.items() if one in experts}
    return {
        "model_type": "deepseek_v3",
        "architectures": ["MistralLarge3ForCausalLM" + ("Eagle" if is_draft else "")],
        **(of_experts or {**_NO_EXPERTS, "first_k_dense_replace": told.get("num_hidden_layers", 0)}),
        **_BY_SOFTMAX,
    }


def _yarn(told: Params) -> dict[str, Any]:
    yarn = _section(told, "yarn")
    unread = next((name for name in yarn if name not in _OF_YARN), None)
    if unread is not None:
        raise ConfigError(f"{FILE}: yarn has {unread[:60]!r}, and SGLang ends with what it does not read")
    theta = {"rope_theta": told["rope_theta"]} if "rope_theta" in told else {}
    read = {_OF_YARN[name]: value for name, value in yarn.items()}
    return {"rope_type": "deepseek_yarn", "mscale_all_dim": 1, **theta, **read}


def _quantized(section: Params) -> dict[str, Any]:
    weights, activations = section.get("qformat_weight"), section.get("qscheme_act")
    if weights != "fp8_e4m3" or activations not in ("NO_SCALES", "TENSOR", None):
        said = f"qformat_weight {weights!r:.60} with qscheme_act {activations!r:.60}"
        raise ConfigError(f"{FILE}: quantization has {said}: SGLang reads fp8_e4m3 a tensor alone")
    scheme = "dynamic" if activations == "NO_SCALES" else "static"
    return {"quant_method": "fp8", "activation_scheme": scheme}


def _with_images(text: dict[str, Any]) -> dict[str, Any]:
    if text.get("multimodal"):
        raise Unsupported(f"{FILE}: multimodal: what SGLang makes of that section is not known here")
    tower = _section(text, "vision_encoder")
    if not tower:
        return text
    whole = {name: text[name] for name in ("quantization_config",) if name in text}
    return {
        "model_type": "pixtral",
        "architectures": ["PixtralForConditionalGeneration"],
        "text_config": {name: value for name, value in text.items() if name != "vision_encoder"},
        "vision_config": {"model_type": "pixtral", **tower},
        **whole,
    }


def _section(told: Params, name: str) -> Params:
    found = told.get(name)
    if not isinstance(found, Mapping | None):
        raise ConfigError(f"{FILE}: {name} is {repr(found)[:60]}: an object is needed")
    return found or {}
