"""What SGLang's version and layout decide about a MoE call: its experts and how it is routed. No torch."""

from __future__ import annotations

from typing import Literal

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.recurrent import AddedConvolutionsConfig
from runtime.server.releases import Release, Wide

# The kernel routes by the logits, or is given ids and weights: both in one int32, or apart.
Routing = Literal["logits", "packed", "apart"]

# Whose layers are those of srt/models/deepseek_v2.py.
_DEEPSEEK = (
    *("deepseek_v2", "deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa", "glm5_next_text", "hy_v4"),
    *("dots_vlm_text", "deepseek_vl2_text", "gigachat3_5"),
)
DEEPSEEK_LAYERS = (*_DEEPSEEK, "mistral_large_3")
# Families that tell trtllm kernels how to route, and what their routers must be for that.
_ROUTED_BY_DEEPSEEK = (
    *_DEEPSEEK,
    "beam",
    "glm4_moe",
    "glm4v_moe_text",
    "mimo_v2_flash",
    "nemotron_h",
    "nemotron_h_puzzle",
)
_ROUTED_BY_SOFTMAX = (
    *("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text", "qwen3_next"),
    *("qwen3_5_moe", "qwen3_5_moe_text", "mistral_large_3", "sdar_moe", "interns1_pro_text"),
    *("iquest_q1", "interns2_mobius_text"),
)
_ROUTED_BY_LLAMA4 = ("llama4_text",)
# Whose routers are told by their words, of either kind, and choose by themselves where nothing is shared out.
_ROUTED_BY_EITHER = ("cohere2_moe", "bailing_moe", "bailing_moe_v2", "sarvam_moe")
# Families that name a way of routing in every release, since 0.5.23, and in none.
_NAME_ROUTING = (
    *DEEPSEEK_LAYERS,
    *("glm4_moe", "glm4v_moe_text", "nemotron_h", "nemotron_h_puzzle", "qwen2_moe", "qwen3_moe"),
    *("qwen3_vl_moe_text", "qwen3_omni_moe_text", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"),
    *("exaone_moe", "sdar_moe", "cohere2_moe", "sarvam_moe", "step3p5", "iquest_q1", "k2_horizon"),
)
_NAME_IT_SINCE = (
    *("llama4_text", "bailing_moe", "bailing_moe_v2", "bailing_hybrid", "bailing_hybrid_v3"),
    *("mimo_v2_flash", "llada2_moe", "beam"),
)
_NAME_NONE = (
    *("mixtral", "gpt_oss", "minimax_m2", "ernie4_5_moe", "gemma4_text", "glm4_moe_lite", "granitemoe"),
    *("granitemoeshared", "granitemoehybrid", "hunyuan_v1_moe", "hy_v3", "kimi_linear", "laguna", "lfm2_moe"),
    *("longcat_flash", "olmoe", "phimoe", "zaya"),
)
# Whose layers hand their choice to every backend: srt/models/step3p5.py, longcat_flash.py, xllm.py.
_CHOOSES = ("step3p5", "longcat_flash", "k2_horizon")
# Whose experts are Triton's kernels on every backend: srt/models/afmoe.py, deepseek.py, dbrx.py,
# xverse_moe.py.
_BY_TRITON = ("afmoe", "deepseek", "dbrx", "xverse_moe")
_INKLINGS = 258  # its routed experts, and those that all tokens ask
MIXTRAL_FUSED = ("fp8", "compressed-tensors", "gptq_marlin", "awq_marlin", "quark_int4fp8_moe")
# SGLang fuses the shared expert of these where it has 256 routed ones: DeepSeek-V3's number, and GLM-5's.
_FUSING_256 = ("deepseek_v3", "glm_moe_dsa")
_FUSING = ("glm4_moe", "glm4v_moe_text", "glm4_moe_lite")
# ... and of these on every backend that does not turn it off: srt/models/minimax_m3.py, glm5_next.py
_ALWAYS_FUSING = ("minimax_m3_vl_text", "glm5_next_text")
# ... and of these where one is shared beside 256: srt/models/dots3_common/modeling.py
_ALWAYS_FUSING_256 = ("dots3_note_text",)
# ... and of these, behind a gate, on every backend that does not turn it off: srt/models/qwen2_moe.py.
_FUSING_BEHIND_GATES = ("qwen3_next",)
_APART_BEHIND = ("deepep", "deepep_v2", "mori")  # can_fuse_shared_expert of srt/models/qwen2_moe.py
# ... and of these on every backend, where nothing goes to other ranks: srt/models/bailing_moe_v3.py.
_FUSING_EVERYWHERE = ("bailing_hybrid_v3",)
# Whose indexer SGLang's config class turns so, and transformers' otherwise: srt/configs/hy_v4.py
_TURNS_NEIGHBOURS = ("hy_v4",)

_WIDE_SINKS = ("gpt_oss", "granite_swa", "granitemoe_swa")


def routing_form(
    model: ModelConfig, runtime: RuntimeConfig, in_fp8_blocks: bool, ep: int, attn_dp: int
) -> Routing:
    if sums_answers_itself(model) or _packs_choice(model):
        return "packed"
    spread = ep > 1 and attn_dp == 1
    by_family = model.model_type in DEEPSEEK_LAYERS and runtime.release.routes_fp8_under_ep
    routed = in_fp8_blocks and spread and by_family
    routed = routed or backend_row(runtime.moe_runner_backend).routed or chooses_itself(model)
    if not routed and (kernels_route(model) or not runtime.release.routes_by_named_method):
        return "logits"
    return "apart" if runtime.release.routes_apart else "packed"


def sums_answers_itself(model: ModelConfig) -> bool:
    """srt/layers/muse_spark: kernels leave each expert's answer as it is, for a norm before their sum."""
    return model.moe is not None and model.moe.answer_eps is not None


def _packs_choice(model: ModelConfig) -> bool:
    """srt/models/inkling_common/moe.py: a router of so many experts has a kernel that does."""
    moe = model.moe
    return moe is not None and moe.sinks > 0 and moe.num_experts + moe.sinks == _INKLINGS


def gates_residuals(model: ModelConfig) -> bool:
    """srt/models/muse_spark.py, with experts or without."""
    return model.gate_temperature is not None


def quantizes_experts_alone(model: ModelConfig) -> bool:
    """Whatever is asked: srt/models/gpt_oss.py, muse_spark.py, inkling.py give no other matrix a method."""
    added = isinstance(model.recurrent, AddedConvolutionsConfig)
    return model.model_type == "gpt_oss" or gates_residuals(model) or added


def has_plain_experts(model: ModelConfig) -> bool:
    """Whatever a server makes of all else."""
    return model.names.served is not None and model.names.served.plain_experts


def plain_anyway(model: ModelConfig) -> tuple[str, ...]:
    """... and ends of the names of matrices, whatever it makes of the others."""
    return () if model.names.served is None else model.names.served.plain


def router_in_fp32(model: ModelConfig, runtime: RuntimeConfig) -> Wide | None:
    """How a router multiplies in float32, if it does: by what it is stored as, or by a copy."""
    if model.moe is not None and model.moe.router_in_fp32:
        return "stored"
    return runtime.release.glm_routers if model.model_type in _FUSING else None


def wide_sinks(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """In float32: srt/models/gpt_oss.py and granite.py, for the kernels that want them so."""
    return runtime.attention_backend == "trtllm_mha" and model.model_type in _WIDE_SINKS


def joins_indexer(model: ModelConfig, release: Release) -> bool:
    """Whether what an indexer keeps of a token is a part of one product in the model's dtype, with its heads'
    weights: use_dsa_indexer_fusion of srt/layers/attention/dsa/dsa_indexer.py."""
    indexer = None if model.mla is None else model.mla.indexer
    as_served = indexer is not None and (indexer.interleaved or model.model_type in _TURNS_NEIGHBOURS)
    return as_served and release.joins_indexer


def chooses_itself(model: ModelConfig) -> bool:
    return model.model_type in _CHOOSES


def runs_by_triton(model: ModelConfig) -> bool:
    """Whatever a server says of its MoE backend."""
    return model.model_type in _BY_TRITON


def has_loose_experts(model: ModelConfig, quantization: str | None) -> bool:
    """Mixtral of a class of its own, or quantized but for a few methods: srt/model_loader/utils.py,
    models/mixtral_quant.py."""
    if model.model_type == "mixtral_quant":
        return True
    return model.model_type == "mixtral" and quantization not in (None, *MIXTRAL_FUSED)


def has_loose_experts_in_file(model: ModelConfig, method: str | None) -> bool:
    """By a checkpoint's own name of its method: where Marlin does not run it, no experts are known at all."""
    return has_loose_experts(model, f"{method}_marlin" if method in ("awq", "gptq") else method)


def names_routing(model: ModelConfig, release: Release) -> bool | None:
    """Whether a class tells its experts a way of routing; None: that is not known."""
    if model.model_type in _NAME_IT_SINCE:
        return release.routes_by_named_method
    return True if model.model_type in _NAME_ROUTING else (False if model.model_type in _NAME_NONE else None)


def kernels_route(model: ModelConfig) -> bool:
    """Whether the family names a way of routing, and it is its router's."""
    moe = model.moe
    if moe is None:
        return False
    if model.model_type in _ROUTED_BY_DEEPSEEK:
        return moe.scoring == "sigmoid" and moe.correction_bias and moe.renormalize
    if model.model_type in _ROUTED_BY_LLAMA4:
        return moe.top_k == 1
    if model.model_type in _ROUTED_BY_EITHER:
        return moe.renormalize
    if moe.from_each_group:
        return False
    return model.model_type in _ROUTED_BY_SOFTMAX and moe.scoring == "softmax" and moe.renormalize


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
    return int(fuses or fuses_on_each_rank(model, runtime) or has_no_shared_mlp(model, runtime, ep))


def has_no_shared_mlp(model: ModelConfig, runtime: RuntimeConfig, ep: int) -> bool:
    """No matrix of a shared expert's is multiplied by itself, whatever runs the experts."""
    turned_off = not runtime.fuses_shared_experts or runtime.moe_a2a_backend != "none" or ep > 1
    backend = runtime.served_by or runtime.moe_runner_backend
    apart = "trtllm" in backend or backend == "flashinfer_cutedsl" or backend.startswith("lora_")
    return _always_fuses(model) and not turned_off and not apart


def _always_fuses(model: ModelConfig) -> bool:
    moe, experts = model.moe, model.quantized.experts
    if experts is not None and experts.name == "nvfp4_beside_mxfp8":
        return False  # shared ones are in the latter
    if moe is None or model.model_type not in _ALWAYS_FUSING_256:
        return model.model_type in _ALWAYS_FUSING and not _keeps_shared_plain(model)
    return moe.num_experts == 256 and moe.shared_intermediate_size == moe.intermediate_size


def _keeps_shared_plain(model: ModelConfig) -> bool:
    """Beside experts in nvfp4: shared_experts_fusion_disable_reason of srt/models/glm5_next.py."""
    if model.checkpoint_quantization != "modelopt_fp4":
        return False
    blocks = (model.block_name(layer) for layer, kind in enumerate(model.layer_kinds) if kind == "moe")
    asks = model.excluded.experts
    return any(asks(model.shared_name(one)) and not asks(model.experts_name(one)) for one in blocks)


def fuses_on_each_rank(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Under expert parallelism too, where each rank has the whole of it and counts its share."""
    moe = model.moe
    if moe is None or moe.shared_intermediate_size != moe.intermediate_size:
        return False
    if model.model_type in _FUSING_EVERYWHERE:
        return runtime.fuses_shared_experts and runtime.moe_a2a_backend == "none"
    turned_off = not runtime.fuses_shared_experts or "trtllm" in runtime.moe_runner_backend
    known = runtime.release.fuses_gated_shared and model.model_type in _FUSING_BEHIND_GATES
    apart = runtime.moe_runner_backend == "flashinfer_cutedsl" or runtime.moe_a2a_backend in _APART_BEHIND
    return known and not turned_off and not apart


def fuses_in_call(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Where the number of a rank's experts is in a key, that one is among them."""
    calls = backend_row(runtime.moe_runner_backend).calls == "cutlass" and runtime.moe_a2a_backend == "none"
    return calls and fuses_on_each_rank(model, runtime)
