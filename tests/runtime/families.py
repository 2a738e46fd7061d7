"""Tiny models of the core's families, made by transformers: their sizes, answers and checkpoints."""

import json
from pathlib import Path
from typing import Any

import torch

HF = dict[str, Any]

VOCAB = 99
_COMMON = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_LLAMA3 = {**_YARN, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ROUTED = {**_EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4, "topk_group": 2}
_LATENT = {
    **_ROUTED, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip
_SPARSE = {"index_topk": 6, "index_n_heads": 16, "index_head_dim": 16, "mlp_layer_types": ["dense", "sparse"]}
_STRETCHED = {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
_DEEPSEEK = {**_LATENT, "first_k_dense_replace": 1, "rope_parameters": _STRETCHED}
_QWEN_MOE = {**_EXPERTS, "head_dim": 32, "num_experts": 8}

# The config class of transformers, and the sizes that differ from the common ones.
_TINY: dict[str, tuple[str, HF]] = {
    "llama": ("LlamaConfig", {"attention_bias": True, "rope_parameters": _LLAMA3}),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": 7}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3MoeConfig", {**_QWEN_MOE, "norm_topk_prob": True}),
    "deepseek_v3": ("DeepseekV3Config", _DEEPSEEK),
    "kimi_k2": ("DeepseekV3Config", {**_DEEPSEEK, "n_group": 1, "topk_group": 1}),
    "deepseek_v32": ("DeepseekV32Config", {**_LATENT, **_SPARSE}),
    "glm4_moe": ("Glm4MoeConfig", {
        **_ROUTED, "n_group": 1, "topk_group": 1, "head_dim": 32, "first_k_dense_replace": 1,
        "use_qk_norm": True, "attention_bias": True,
    }),
    "glm_moe_dsa": ("GlmMoeDsaConfig", {**_LATENT, **_SPARSE, "n_group": 1, "topk_group": 1}),
    "gpt_oss": ("GptOssConfig", {
        "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6,
        "rope_parameters": {**_YARN, "truncate": False},
    }),
    "minimax_m2": ("MiniMaxM2Config", {
        "head_dim": 32, "rotary_dim": 16,  # transformers before 5.23 reads the factor alone
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        "num_local_experts": 8, "num_experts_per_tok": 2,
    }),
    "qwen3_next": ("Qwen3NextConfig", {
        **_QWEN_MOE, "shared_expert_intermediate_size": 48, "full_attention_interval": 2,
        "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
    }),
    "gemma3_text": ("Gemma3TextConfig", {
        "head_dim": 32, "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20,
    }),
    "nemotron_h": ("NemotronHConfig", {
        **_EXPERTS, "head_dim": 32, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 4,
        "n_routed_experts": 8, "moe_shared_expert_intermediate_size": 48, "moe_latent_size": 24,
    }),
}  # fmt: skip
FAMILIES = tuple(_TINY)
MOE_FAMILIES = tuple(name for name, (_, sizes) in _TINY.items() if "num_experts_per_tok" in sizes)


def make_reference(name: str, **changes: Any) -> Any:
    """A transformers model in fp32 with eager attention; `saved_as` is its config.json."""
    import transformers
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    config_class, sizes = _TINY[name]
    config = getattr(transformers, config_class)(**{**_COMMON, **sizes, **changes})
    config._attn_implementation = "eager"
    if torch.get_default_device().type == "meta":
        with no_init_weights():
            model = AutoModelForCausalLM.from_config(config).float().eval()
        model.tie_weights()
    else:
        model = AutoModelForCausalLM.from_config(config).float().eval()
        _randomize(model)
    model.saved_as = _as_published(name, json.loads(json.dumps(model.config.to_dict())))
    model.saved_as["architectures"] = [type(model).__name__]
    return model


def _as_published(name: str, hf: HF) -> HF:
    """With the fields that published checkpoints have and transformers does not write."""
    if name in ("deepseek_v3", "kimi_k2"):
        routing = {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
        return {**routing, **hf, "moe_layer_freq": 1, "model_type": name}
    if name in ("deepseek_v32", "glm_moe_dsa"):
        return {**hf, "first_k_dense_replace": hf["mlp_layer_types"].count("dense"), "moe_layer_freq": 1}
    if name == "minimax_m2":
        return {**hf, "use_qk_norm": True, "use_routing_bias": True, "scoring_func": "sigmoid"}
    if name == "qwen3_next":
        rope = dict(hf.pop("rope_parameters"))
        apart = {one: rope.pop(one) for one in ("rope_theta", "partial_rotary_factor") if one in rope}
        every = hf["layer_types"].index("full_attention") + 1
        return {**hf, **apart, "rope_scaling": None, "full_attention_interval": every}
    if name == "nemotron_h":
        served = {"linear_attention": "mamba", "full_attention": "attention"}
        kinds = hf.pop("layer_types", None) or hf["layers_block_type"]
        blocks = [served.get(kind, kind) for kind in kinds]
        return {**hf, "mamba_n_groups": hf["n_groups"], "layers_block_type": blocks}
    return hf


def config_json(model: Any) -> HF:
    """As its checkpoint has it."""
    told: HF = json.loads(json.dumps(model.saved_as))
    return told


def tensors(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def save(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    (folder / "config.json").write_text(json.dumps(model.saved_as))
    return folder


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocab]: what each position predicts."""
    logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def _randomize(model: torch.nn.Module) -> None:
    """Weights so large that every part shows in the logits."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        # The rest are buffers that follow from the config.
        if not tensor.is_floating_point() or "inv_freq" in name or "embed_scale" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            tensor.data.add_(0.2 * noise)
        elif tensor.dim() < 2:
            tensor.data.copy_(0.3 * noise)
        elif "embed" in name:
            tensor.data.copy_(noise)
        else:
            tensor.data.copy_(noise * tensor.shape[-1] ** -0.5)
