"""Where SGLang counts layers or experts by what a file has to tell beside a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# What a class of SGLang's asks of its config class, which has no such field where a file tells none.
_STEP = ("moe_layer_freq", "scoring_func")
_ASKED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"), (*_STEP, "topk_method")),
    **dict.fromkeys(("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "MistralLarge3ForCausalLM"), _STEP),
    "DeepseekV2ForCausalLM": _STEP,
    "HunYuanMoEV1ForCausalLM": ("use_mixed_mlp_moe", "num_shared_expert"),
    **dict.fromkeys(
        ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
        ("num_attention_groups", "moe_num_experts", "moe_top_k", "share_expert_dim"),
    ),
    "Glm4MoeLiteForCausalLM": ("first_k_dense_replace",),
    "Mamba2ForCausalLM": ("intermediate_size",),
    **dict.fromkeys(
        ("ExaoneForCausalLM", "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM", "LlavaVidForCausalLM"),
        ("pad_token_id",),
    ),
}
_WIDTH, _WIDE = "intermediate_size", ("MambaForCausalLM", "Mamba2ForCausalLM", "FalconMambaForCausalLM")
_ASKED_SINCE_0_5_22 = {"Mamba2ForCausalLM": ("rms_norm",)}  # whose transformers has it no more
_OF_TOWERS = {
    "Qwen2VLForConditionalGeneration": "in_chans",
    "KimiK25ForConditionalGeneration": "vt_hidden_size",
}
_SECTIONS = ("interns2_mobius_text", "step3_text", "moss_vl_text", "mllama_text_model")
_BY_INTERVAL = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "interns2_mobius_text")


def ends_of_uncounted(deployment: Deployment) -> Iterator[str]:
    yield from _uncounted_experts(deployment)
    yield from _uncounted_layers(deployment)
    yield from _untold(deployment)
    yield from _untold_of_towers(deployment)


def _uncounted_experts(deployment: Deployment) -> Iterator[str]:
    """max_n_routed_experts of srt/configs/nemotron_h.py asks each block, as weights are loaded and, since
    0.5.23, before."""
    server, checkpoint = deployment.server, checkpoint_of(deployment)
    if deployment.model.model_type != "nemotron_h_puzzle":
        return
    if server.asked.load_format == "dummy" and server.release.number < (0, 5, 23):
        return
    blocks = checkpoint.get("block_configs") or ()
    if any(one["block_type"] == "moe" and "n_routed_experts" not in one for one in blocks):
        yield (
            "a block of experts in block_configs has no n_routed_experts, and SGLang asks each for its own, "
            "whatever stands beside them: --json-model-override-args"
        )


def _uncounted_layers(deployment: Deployment) -> Iterator[str]:
    """layers_block_type of srt/configs/qwen3_next.py asks, whatever layer_types says."""
    is_one = deployment.model.model_type in _BY_INTERVAL
    if is_one and not checkpoint_of(deployment).has("full_attention_interval"):
        yield (
            "full_attention_interval is missing, which SGLang counts layers by, whatever layer_types says: "
            "--json-model-override-args"
        )


def _untold(deployment: Deployment) -> Iterator[str]:
    checkpoint = checkpoint_of(deployment)
    names = _ASKED.get(checkpoint.architecture, ())
    if deployment.server.release.number >= (0, 5, 22):
        names += _ASKED_SINCE_0_5_22.get(checkpoint.architecture, ())
    if checkpoint.architecture in _WIDE and checkpoint.text.get(_WIDTH, 1) is None:
        yield f"{_WIDTH} is null, by which SGLang's class makes its mixers: --json-model-override-args"
    for asked in names:
        if asked not in checkpoint.text:
            yield f"{asked} is missing, which SGLang's class asks for: --json-model-override-args"


def _untold_of_towers(deployment: Deployment) -> Iterator[str]:
    """srt/models/qwen2_vl.py, kimi_k25.py, internvl.py"""
    checkpoint = checkpoint_of(deployment)
    vision, asked = checkpoint.mapping("vision_config"), _OF_TOWERS.get(checkpoint.architecture)
    if asked is not None and asked not in vision:
        yield f"vision_config: {asked} is missing, which SGLang's class asks for: --json-model-override-args"
    for name in ("image_size", "patch_size"):
        if checkpoint.architecture == "InternVLChatModel" and isinstance(vision.get(name), list):
            yield f"vision_config: {name} is a list, and SGLang divides numbers: --json-model-override-args"
    if checkpoint.model_type in _SECTIONS:
        yield f"model_type is {checkpoint.model_type}: SGLang's class takes that as a section, beside a tower"
