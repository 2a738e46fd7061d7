"""What SGLang's rules ask about a model's family, of its checkpoint and the flags."""

from __future__ import annotations

from runtime.server import architectures
from runtime.server.choices import Choices

_PATTERNED = ("exaone4", "exaone_moe")


def is_mla(c: Choices) -> bool:
    name = c.model.architecture
    if name in c.release.without_rules:
        return False
    if name in architectures.MLA_WITH_LATENTS:
        return c.model.has("kv_lora_rank")
    if name == "DeepseekVL2ForCausalLM":
        return bool(c.model.get("use_mla", True))
    return name in architectures.MLA


def has_pattern(c: Choices) -> bool:
    """Of EXAONE's windows: transformers' config classes have one where a file has no word of it."""
    untold = "sliding_window_pattern" not in c.model.hf
    return (untold and c.model.model_type in _PATTERNED) or c.model.has("sliding_window_pattern")


def is_sparse(c: Choices) -> bool:
    """An indexer chooses the keys that attention sees."""
    return c.model.architecture in c.release.sparse_architectures and c.model.has("index_topk")


def is_multimodal(c: Choices) -> bool:
    name, enabled = c.model.architecture, c.enable_multimodal
    if enabled is None:
        enabled = name not in architectures.TEXT_BY_DEFAULT
        if name == "MiMoV2ForCausalLM":
            enabled = "vision_config" in c.model.hf and "audio_config" in c.model.hf
    return bool(enabled) and (name in architectures.MULTIMODAL or c.model.text is not c.model.hf)


def is_hybrid(c: Choices) -> bool:
    """Some of its layers keep a recurrent state."""
    if c.model.architecture in architectures.GRANITE_HYBRID:
        return "mamba" in c.model.names("layer_types")
    if c.model.architecture == architectures.MINICPM_SALA:
        return any(one.startswith("lightning") for one in c.model.names("mixer_types"))
    return c.model.architecture in architectures.HYBRID - c.release.without_rules


def chooses_blocks(c: Choices) -> bool:
    """Of MiniCPM-SALA, by the config class that SGLang has of it: srt/configs/minicpm.py."""
    attends = any(not one.startswith("lightning") for one in c.model.names("mixer_types") or ("minicpm4",))
    is_it = c.model.architecture == architectures.MINICPM_SALA and c.model.model_type == "minicpm_sala"
    return is_it and attends and c.model.has("sparse_config")


def has_delta_attention(c: Choices) -> bool:
    """Kimi's linear attention, by either of the ways in which a config.json tells it."""
    if c.model.section("linear_attn_config").get("kda_layers"):
        return True
    sized = c.model.has("linear_num_heads") and c.model.has("linear_head_dim")
    return sized and "linear_attention" in c.model.names("layer_types")


def has_dp_attention(c: Choices) -> bool:
    return c.attn_dp_size > 1 or (c.enable_dp_attention and c.release.dp_attention_of_one)


def replicas(c: Choices) -> int:
    """Servers beside each other, that share nothing."""
    return 1 if c.enable_dp_attention else int(c.dp_size)


def is_disaggregated(c: Choices) -> bool:
    return bool(c.disaggregation_mode != "null")


def shares_contexts(c: Choices) -> bool:
    return bool(c.attn_cp_size > 1 or c.dcp_size > 1 or c.enable_prefill_cp)


def has_adapters(c: Choices) -> bool:
    return bool(c.enable_lora or c.lora_paths)


def is_hybrid_swa(c: Choices) -> bool:
    """Layers that see a window have a cache of their own."""
    is_told = c.model.model_type in architectures.HYBRID_SWA_TYPES
    if c.model.architecture == architectures.MUSE_SPARK:
        is_told = "sliding_attention" in c.model.names("layer_types")
    return (is_told or c.model.architecture in architectures.HYBRID_SWA) and not c.disable_hybrid_swa_memory
