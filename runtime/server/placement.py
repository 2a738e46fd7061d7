"""Where experts are, and how many copies of them: what --ep-num-redundant-experts and EPLB make of a model.

srt/eplb/expert_location.py, expert_distribution.py; which classes make room for copies, their code says.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.shape import Server

# What is read of it here; the rest of "where experts are" is of ranks that come and go.
FLAGS = (
    *("ep_num_redundant_experts", "enable_eplb", "init_expert_location", "ep_dispatch_algorithm"),
    *("eplb_algorithm", "eplb_rebalance_num_iterations", "eplb_rebalance_layers_per_chunk"),
    *("eplb_min_rebalancing_utilization_threshold", "expert_distribution_recorder_mode"),
    "expert_distribution_recorder_buffer_size",
)
# srt/models/qwen2_moe.py, qwen3_moe.py, qwen3_next.py, qwen3_5.py; deepseek_v2.py and what is built on it;
# glm4_moe_lite.py, minimax_m2.py, minimax_m3.py, exaone_moe.py, laguna.py
_WITH_COPIES = frozenset(
    (
        *("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "qwen3_vl_moe_text"),
        *("qwen3_omni_moe_text", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"),
        *("mistral_large_3", "glm4_moe_lite", "minimax_m2", "minimax_m3_vl_text", "exaone_moe"),
        "laguna",
    )
)


def with_copies(model: ModelConfig, server: Server) -> ModelConfig:
    copies = server.asked.ep_num_redundant_experts
    if not copies or model.moe is None or model.model_type not in _WITH_COPIES:
        return model
    return replace(model, moe=replace(model.moe, redundant=copies))


def follows_placement(model: ModelConfig, server: Server) -> bool:
    """TRT-LLM's kernels choose experts themselves, and know no copies."""
    is_known = model.model_type in _WITH_COPIES and model.num_moe_layers > 0 and not model.by_transformers
    chooses = server.backend.calls == "trtllm" or server.asked.enable_waterfill
    return is_known and not chooses and not _asks_otherwise(server)


def _asks_otherwise(server: Server) -> bool:
    asked = server.asked
    drafts = asked.speculative_draft_model_path or server.speculative
    own = asked.speculative_draft_model_path is None and asked.speculative_algorithm in ("EAGLE", "NGRAM")
    return (
        server.moe_a2a_backend not in ("none", "deepep", "flashinfer")
        or asked.expert_distribution_recorder_mode not in (None, "stat")
        or asked.others.get("ep_dispatch_algorithm") == "lp"
        or bool(drafts and not own)
    )
