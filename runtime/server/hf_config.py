"""From a checkpoint's `config.json` to a `ModelConfig`: one reader for every supported family.

Hugging Face configs spell the same thing differently over the years (`rope_theta` and `rope_scaling`, or one
`rope_parameters`; `num_experts`, `num_local_experts` or `n_routed_experts`), so a field lists its spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.server.bounds import MODEL, check_size
from runtime.server.config import (
    AttentionKind,
    IndexerConfig,
    LayerKind,
    MLAConfig,
    ModelConfig,
    MoEConfig,
)
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]

# model_type -> the class whose name SGLang puts into its cache key
CONFIG_CLASSES = {
    "llama": "LlamaConfig",
    "qwen3": "Qwen3Config",
    "qwen3_moe": "Qwen3MoeConfig",
    "mixtral": "MixtralConfig",
    "deepseek_v3": "DeepseekV3Config",
    "deepseek_v32": "_DeepseekV32ConfigAlias",
    "glm4_moe": "Glm4MoeConfig",
    "glm_moe_dsa": "GlmMoeDsaConfig",
    "gpt_oss": "GptOssConfig",
}
_MLA_TYPES = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"}
_QK_NORM_TYPES = {"qwen3", "qwen3_moe"}
_OUTPUT_BIAS_TYPES = {"llama", "qwen3", "qwen3_moe", "gpt_oss"}  # attention_bias is the output's too


def model_config(hf: HF) -> ModelConfig:
    model_type = str(hf.get("model_type", ""))
    if model_type not in CONFIG_CLASSES:
        known = ", ".join(sorted(CONFIG_CLASSES))
        raise Unsupported(f"model_type {model_type!r} is not supported: this runtime knows {known}")
    _refuse_unsupported(hf)
    heads = _require(hf, "num_attention_heads")
    hidden = _require(hf, "hidden_size")
    layers = _require(hf, "num_hidden_layers")
    return ModelConfig(
        config_class=CONFIG_CLASSES[model_type],
        model_type=model_type,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=hf.get("num_key_value_heads") or heads,
        head_dim=hf.get("head_dim") or hidden // heads,
        intermediate_size=hf.get("intermediate_size") or 0,
        vocab_size=_require(hf, "vocab_size"),
        max_position=hf.get("max_position_embeddings", 4096),
        rms_eps=hf.get("rms_norm_eps", 1e-6),
        rope_theta=_rope(hf).get("rope_theta", 10000.0),
        rope_parameters=_rope(hf),
        rope_interleave=_rope_interleave(hf, model_type),
        tie_word_embeddings=bool(hf.get("tie_word_embeddings", False)),
        qk_norm=model_type in _QK_NORM_TYPES or bool(hf.get("use_qk_norm", False)),
        attention_bias=bool(hf.get("attention_bias", False)),
        output_bias=model_type in _OUTPUT_BIAS_TYPES and bool(hf.get("attention_bias", False)),
        attention_sinks=model_type == "gpt_oss",
        sliding_window=_sliding_window(hf, model_type),
        layer_kinds=_layer_kinds(hf, layers),
        attention_kinds=_attention_kinds(hf, layers),
        checkpoint_quantization=declared_quantization(hf),
        quantization_block=_block(hf),
        dtype=str(hf.get("dtype") or hf.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        moe=_moe(hf, model_type),
        mla=_mla(hf) if model_type in _MLA_TYPES else None,
    )


def _refuse_unsupported(hf: HF) -> None:
    if hf.get("mlp_bias"):
        raise Unsupported("config.json: mlp_bias is true: this runtime's MLPs have no bias")
    if "shared" in (hf.get("indexer_types") or ()) or (hf.get("index_topk_freq") or 1) > 1:
        raise Unsupported("config.json: layers share an indexer: this runtime gives each layer its own")


def _require(hf: HF, name: str) -> int:
    value = hf.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {name} is {repr(value)[:60]}: a positive whole number is needed")
    check_size(f"config.json: {name}", value, MODEL[name])
    return value


def _first(hf: HF, *names: str) -> Any:
    return next((hf[name] for name in names if hf.get(name) is not None), None)


def _rope(hf: HF) -> dict[str, Any]:
    if isinstance(hf.get("rope_parameters"), Mapping):
        return dict(hf["rope_parameters"])
    scaling = dict(hf.get("rope_scaling") or {})
    kind = scaling.pop("type", None)
    return {"rope_type": kind or "default", "rope_theta": hf.get("rope_theta", 10000.0), **scaling}


def _rope_interleave(hf: HF, model_type: str) -> bool:
    return bool(hf.get("rope_interleave", model_type in _MLA_TYPES))


def _sliding_window(hf: HF, model_type: str) -> int | None:
    if model_type == "gpt_oss" or hf.get("use_sliding_window"):
        return hf.get("sliding_window")
    return None


def _layer_kinds(hf: HF, layers: int) -> tuple[LayerKind, ...]:
    if _first(hf, "num_experts", "num_local_experts", "n_routed_experts") is None:
        return _kinds(layers, lambda i: False)
    listed = hf.get("mlp_layer_types")
    if listed:
        return _kinds(layers, lambda i: listed[i] == "sparse")
    if hf.get("first_k_dense_replace") is not None:
        every = hf.get("moe_layer_freq", 1)
        first: int = hf["first_k_dense_replace"]
        return _kinds(layers, lambda i: i >= first and i % every == 0)
    step, dense = hf.get("decoder_sparse_step", 1), set(hf.get("mlp_only_layers") or ())
    return _kinds(layers, lambda i: i not in dense and (i + 1) % step == 0)


def _kinds(layers: int, is_moe: Callable[[int], bool]) -> tuple[LayerKind, ...]:
    kinds: list[LayerKind] = []
    for i in range(layers):
        kinds.append("moe" if is_moe(i) else "dense")
    return tuple(kinds)


def _attention_kinds(hf: HF, layers: int) -> tuple[AttentionKind, ...]:
    listed = hf.get("layer_types")
    if listed is None and hf.get("model_type") == "gpt_oss":
        listed = ["sliding_attention", "full_attention"] * layers
    kinds: list[AttentionKind] = []
    for i in range(layers):
        kinds.append("sliding" if listed and listed[i] == "sliding_attention" else "full")
    return tuple(kinds)


def _moe(hf: HF, model_type: str) -> MoEConfig | None:
    experts = _first(hf, "num_experts", "num_local_experts", "n_routed_experts")
    if experts is None:
        return None
    intermediate = hf.get("moe_intermediate_size") or hf["intermediate_size"]
    sigmoid = model_type in _MLA_TYPES or model_type == "glm4_moe"
    gpt_oss = model_type == "gpt_oss"
    return MoEConfig(
        num_experts=experts,
        top_k=_require(hf, "num_experts_per_tok"),
        intermediate_size=intermediate,
        shared_intermediate_size=intermediate * (hf.get("n_shared_experts") or 0),
        scoring="sigmoid" if sigmoid else "softmax",
        renormalize=True if model_type in ("mixtral", "gpt_oss") else bool(hf.get("norm_topk_prob", False)),
        correction_bias=sigmoid,
        num_groups=hf.get("n_group") or 1,
        top_k_groups=hf.get("topk_group") or 1,
        routed_scaling_factor=hf.get("routed_scaling_factor") or 1.0,
        router_bias=gpt_oss,
        expert_bias=gpt_oss,
        swiglu_alpha=hf.get("swiglu_alpha", 1.702) if gpt_oss else None,
        swiglu_limit=hf.get("swiglu_limit", 7.0) if gpt_oss else None,
    )


def _mla(hf: HF) -> MLAConfig:
    indexer = None
    if hf.get("index_topk"):
        indexer = IndexerConfig(hf["index_n_heads"], hf["index_head_dim"], hf["index_topk"])
    return MLAConfig(
        q_lora_rank=hf.get("q_lora_rank"),
        kv_lora_rank=_require(hf, "kv_lora_rank"),
        qk_nope_head_dim=_require(hf, "qk_nope_head_dim"),
        qk_rope_head_dim=_require(hf, "qk_rope_head_dim"),
        v_head_dim=_require(hf, "v_head_dim"),
        indexer=indexer,
    )


def declared_quantization(hf: HF) -> str | None:
    """The method of the checkpoint's weights, under SGLang's name."""
    section = hf.get("quantization_config")
    if not isinstance(section, Mapping):
        return None
    method = section.get("quant_method")
    if method == "modelopt" or (method is None and "quant_algo" in section):
        return _modelopt(str(section.get("quant_algo", "")).upper())
    return None if method is None else str(method)


def _modelopt(algorithm: str) -> str:
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MIXED_PRECISION": "modelopt_mixed"}.get(algorithm, "modelopt")


def _block(hf: HF) -> tuple[int, int] | None:
    section = hf.get("quantization_config")
    block = section.get("weight_block_size") if isinstance(section, Mapping) else None
    return tuple(block) if block else None
