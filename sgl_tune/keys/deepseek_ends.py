"""Where classes end that have one of DeepSeek's language models inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_READ_ALONE = {
    "KimiVLForConditionalGeneration": "Kimi-VL",
    "SarvamMLAForCausalLM": "Sarvam 105B",
    "DotsVLMForCausalLM": "dots.vlm",
    "DeepseekVL2ForCausalLM": "DeepSeek-VL2",
    "MiniCPM3ForCausalLM": "MiniCPM3",
}


def ends_of_deepseek(deployment: Deployment) -> Iterator[str]:
    yield from _random_latents(deployment)
    yield from _values_of_no_width(deployment)
    yield from _heads_of_its_class(deployment)


def _random_latents(deployment: Deployment) -> Iterator[str]:
    """srt/models/kimi_vl.py, sarvam_moe.py, dots_vlm.py, deepseek_vl2.py and minicpm3.py take kv_b_proj apart
    as they read files, and at no other load."""
    name = _READ_ALONE.get(checkpoint_of(deployment).architecture)
    if name is not None and deployment.model.is_mla and deployment.server.asked.load_format == "dummy":
        yield f"--load-format dummy leaves {name}'s attention without its matrices"


def _values_of_no_width(deployment: Deployment) -> Iterator[str]:
    """srt/configs/model_config.py: its pool's values are as wide as DeepSeek-VL2's smallest says, and
    Unlimited-OCR."""
    checkpoint, release = checkpoint_of(deployment), deployment.server.release.number
    is_asked = checkpoint.architecture in ("DeepseekVL2ForCausalLM", "UnlimitedOCRForCausalLM")
    if (
        is_asked
        and not deployment.model.is_mla
        and checkpoint.get("v_head_dim") == 0
        and release < (0, 5, 19)
    ):
        yield "v_head_dim is 0, and before 0.5.19 SGLang's pool then has values of no width"


def _heads_of_its_class(deployment: Deployment) -> Iterator[str]:
    """srt/models/deepseek_v2.py, of as many as DeepSeek-VL2's config class has where its file tells none."""
    checkpoint, ranks = checkpoint_of(deployment), deployment.parallel.attn_tp
    if checkpoint.architecture != "DeepseekVL2ForCausalLM" or checkpoint.has("num_attention_heads"):
        return
    heads = deployment.model.main_attention.num_heads
    if heads % ranks:
        yield f"{heads} attention heads, as its class says, cannot be divided among {ranks} ranks"
