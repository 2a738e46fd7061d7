"""MLPs that each rank has whole, for its own rows, where others are split over all for the rows of all."""

from __future__ import annotations

from runtime.server.call_rules import DEEPSEEK_LAYERS
from runtime.server.config import ModelConfig, RuntimeConfig

# Whose classes ask is_dense_ffn_fully_dp for their layers without experts.
_DENSE = (
    *(name for name in DEEPSEEK_LAYERS if name != "hy_v4"),
    *("glm4_moe", "glm4v_moe_text", "glm4_moe_lite", "ernie4_5", "ernie4_5_moe", "mimo_v2_flash"),
    "paddleocr_vl_text",
    *("bailing_moe", "bailing_moe_v2", "bailing_hybrid_v3", "sarvam_moe", "minimax_m3_vl_text"),
)
# Whose classes ask should_use_flashinfer_cutlass_moe_fp4_allgather for their shared experts.
_SHARED = (*DEEPSEEK_LAYERS, "glm4_moe", "glm4v_moe_text", "glm4_moe_lite", "step3p5")
_PLANNED_BY_NONE = ("solar_open",)  # base_model_tp_plan


def has_whole_dense(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    return runtime.whole_dense_mlps and model.model_type in _DENSE


def has_whole_shared(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Where rows are gathered in nvfp4 for the experts alone, or transformers plans no ranks of them."""
    is_gathered = runtime.gathers_nvfp4 and model.model_type in _SHARED
    return is_gathered or model.model_type in _PLANNED_BY_NONE
