"""What a server's layout decides about a MoE call: its experts and how it is routed. No torch."""

from __future__ import annotations

from typing import Literal

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig

# The kernel routes by the logits, or is given ids and weights apart.
Routing = Literal["logits", "apart"]

# Whose layers are those of srt/models/deepseek_v2.py.
DEEPSEEK_LAYERS = ("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa")
# Families that tell trtllm kernels how to route, and what their routers must be for that.
_ROUTED_BY_DEEPSEEK = (*DEEPSEEK_LAYERS, "glm4_moe", "nemotron_h")
_ROUTED_BY_SOFTMAX = ("qwen3_moe", "qwen3_next")
# SGLang fuses the shared expert of these where it has 256 routed ones: DeepSeek-V3's number, and GLM-5's.
_FUSING_256 = ("deepseek_v3", "glm_moe_dsa")
_FUSING = ("glm4_moe",)
# ... and of these, behind a gate, on every backend that does not turn it off: srt/models/qwen2_moe.py.
_FUSING_BEHIND_GATES = ("qwen3_next",)
# Whose classes ask is_dense_ffn_fully_dp for their layers without experts, and
# should_use_flashinfer_cutlass_moe_fp4_allgather for their shared experts.
_WHOLE = (*DEEPSEEK_LAYERS, "glm4_moe")


def routing_form(
    model: ModelConfig, runtime: RuntimeConfig, in_fp8_blocks: bool, ep: int, attn_dp: int
) -> Routing:
    spread = ep > 1 and attn_dp == 1
    routed = in_fp8_blocks and spread and model.model_type in DEEPSEEK_LAYERS
    routed = routed or backend_row(runtime.moe_runner_backend).routed
    return "apart" if routed or not kernels_route(model) else "logits"


def kernels_route(model: ModelConfig) -> bool:
    """Whether the family names a way of routing, and it is its router's."""
    moe = model.moe
    if moe is None:
        return False
    if model.model_type in _ROUTED_BY_DEEPSEEK:
        return moe.scoring == "sigmoid" and moe.correction_bias and moe.renormalize
    return model.model_type in _ROUTED_BY_SOFTMAX and moe.scoring == "softmax" and moe.renormalize


def router_in_fp32(model: ModelConfig) -> bool:
    """Whether a router is stored, and multiplies, in float32."""
    return (model.moe is not None and model.moe.router_in_fp32) or model.model_type in _FUSING


def wide_sinks(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """In float32: srt/models/gpt_oss.py, for the kernels that want them so."""
    return runtime.attention_backend == "trtllm_mha" and model.model_type == "gpt_oss"


def joins_indexer(model: ModelConfig) -> bool:
    """Whether what an indexer keeps of a token is a part of one product in the model's dtype, with its heads'
    weights: use_dsa_indexer_fusion of srt/layers/attention/dsa/dsa_indexer.py."""
    indexer = None if model.mla is None else model.mla.indexer
    return indexer is not None and indexer.interleaved


def has_whole_dense(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Dense MLPs that each rank has whole, for its own rows."""
    return runtime.whole_dense_mlps and model.model_type in _WHOLE


def has_whole_shared(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Where rows are gathered in nvfp4 for the experts alone."""
    return runtime.gathers_nvfp4 and model.model_type in _WHOLE


def fused_shared_experts(model: ModelConfig, runtime: RuntimeConfig, ep: int) -> int:
    """Shared experts that a CUTLASS call runs as routed ones behind the last: 1 or 0.

    SGLang's Triton kernels do so too. There no key depends on it, and the two kept apart compute the same.
    """
    moe = model.moe
    if moe is None or moe.shared_intermediate_size != moe.intermediate_size:
        return 0
    backend = backend_row(runtime.moe_runner_backend)
    if not (backend.fuses_shared_experts and runtime.fuses_shared_experts):
        return 0
    if runtime.moe_a2a_backend != "none" or ep > 1:
        return 0
    fuses = model.model_type in _FUSING or (model.model_type in _FUSING_256 and moe.num_experts == 256)
    return int(fuses or fuses_on_each_rank(model, runtime))


def fuses_on_each_rank(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Under expert parallelism too, where each rank has the whole of it and counts its share."""
    moe = model.moe
    if moe is None or moe.shared_intermediate_size != moe.intermediate_size:
        return False
    turned_off = not runtime.fuses_shared_experts or "trtllm" in runtime.moe_runner_backend
    return model.model_type in _FUSING_BEHIND_GATES and not turned_off


def fuses_in_call(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Where the number of a rank's experts is in a key, that one is among them."""
    calls = backend_row(runtime.moe_runner_backend).calls == "cutlass" and runtime.moe_a2a_backend == "none"
    return calls and fuses_on_each_rank(model, runtime)
