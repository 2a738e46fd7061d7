"""Where a start ends by the class that SGLang reads a config.json with: transformers', or the file's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def ends_of_configs(deployment: Deployment) -> Iterator[str]:
    return chain.from_iterable(rule(deployment) for rule in _RULES)


def reads_by_its_own(deployment: Deployment) -> bool:
    """By a class that stands beside config.json, which a server is told to trust."""
    trusts = deployment.launch is None or deployment.server.asked.others.get("trust_remote_code")
    return bool(trusts and checkpoint_of(deployment).mapping("auto_map"))


def _tied_paddle(deployment: Deployment) -> Iterator[str]:
    """srt/models/paddleocr_vl.py has no place for a head where it is tied, as by transformers' class since
    the one that 0.5.22 pins, whatever a flat file says; a file's own class does as it says."""
    server, checkpoint = deployment.server, checkpoint_of(deployment)
    is_paddle = checkpoint.architecture == "PaddleOCRVLForConditionalGeneration"
    if not is_paddle or deployment.model.tie_word_embeddings or server.release.number < (0, 5, 22):
        return
    if not reads_by_its_own(deployment):
        yield (
            "transformers ties PaddleOCR-VL's head since 0.5.22, and SGLang then knows no lm_head.weight: "
            "--trust-remote-code, with its own class beside config.json, does not"
        )


def _layers_apart(deployment: Deployment) -> Iterator[str]:
    """srt/utils/hf_transformers/config.py: which layers of Gemma 4 have other heads than the rest."""
    model, checkpoint = deployment.model, checkpoint_of(deployment)
    if model.model_type not in ("gemma4_text", "diffusion_gemma_text"):
        return
    if checkpoint.has("per_layer_config") and not deployment.server.release.reads_layers_apart:
        yield "per_layer_config is told, which SGLang reads since 0.5.22"
    shapes = {(one.head_dim, one.num_kv_heads) for one in model.attention.values()}
    if checkpoint.model_type == model.model_type and len(shapes) > 1:
        yield "its text alone: SGLang reads heads by kind of layer of a whole Gemma 4, of model_type gemma4"


def _heads_apart(deployment: Deployment) -> Iterator[str]:
    """srt/utils/hf_transformers/config.py asks for all that a text has, and transformers' class of Step 3.5,
    of the transformers that 0.5.22 pins, answers for heads a layer at a time."""
    model, checkpoint = deployment.model, checkpoint_of(deployment)
    if model.model_type != "step3p5" or not deployment.server.release.reads_layers_apart:
        return
    told = checkpoint.get("num_attention_heads")
    is_apart = any(one.num_heads != told for one in model.attention.values())
    if is_apart and not reads_by_its_own(deployment):
        yield (
            "transformers tells Step 3.5's heads by layer since 0.5.22, and SGLang asks for all: "
            "--trust-remote-code, with its own class beside config.json, answers"
        )


def _width_of_heads(deployment: Deployment) -> Iterator[str]:
    """srt/configs/model_config.py takes what transformers' class has of it, until 0.5.14 null, too, but of
    what is named as a Mixtral."""
    checkpoint = checkpoint_of(deployment)
    if deployment.server.release.fills_in_head_dim or checkpoint.architecture == _FILLED_IN:
        return
    is_null = checkpoint.get("model_type") in _NULL_UNLESS_TOLD and checkpoint.get("head_dim") is None
    if is_null and not reads_by_its_own(deployment):
        yield "head_dim is missing: transformers leaves it at null, and before 0.5.14 SGLang counts by that"


def _ropes_by_kind(deployment: Deployment) -> Iterator[str]:
    """transformers/modeling_rope_utils.py, until the one that 0.5.15 pins, looks for what a yarn stretches
    beside the ropes of kinds of layers. SGLang had a class of Laguna before transformers did."""
    checkpoint, number = checkpoint_of(deployment), deployment.server.release.number
    first = _FIRST_BY_TRANSFORMERS.get(deployment.model.model_type, number)
    if not first <= number < _READS_ROPES_BY_KIND or reads_by_its_own(deployment):
        return
    told, kinds = checkpoint.get("rope_parameters"), checkpoint.get("layer_types") or ()
    ropes = told if isinstance(told, Mapping) else {}
    stretched = [one for one in ropes.values() if isinstance(one, Mapping) and _kind_of(one) == "yarn"]
    if stretched and set(ropes) <= set(kinds):
        yield (
            "rope_parameters has a yarn by kind of layer, and before 0.5.15 transformers looks for its "
            "original_max_position_embeddings beside the kinds: SGLang 0.5.15"
        )


def _indexed_layers(deployment: Deployment) -> Iterator[str]:
    """srt/configs/qwen4_exp.py, hy_v4.py, and transformers' class that glm5_next.py's is one of."""
    before = _NAMED_BEFORE.get(deployment.model.model_type)
    if before is None or deployment.server.release.knows_indexed_attention:
        return
    if "indexed_attention" in (checkpoint_of(deployment).get("layer_types") or ()):
        yield f"layer_types names indexed_attention, which SGLang knows as {before} alone before 0.5.22"


def _kind_of(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type"))


_FILLED_IN = "MixtralForCausalLM"
_NULL_UNLESS_TOLD = ("mixtral", "hunyuan_v1_dense", "hunyuan_v1_moe")
_READS_ROPES_BY_KIND = (0, 5, 15)
_FIRST_BY_TRANSFORMERS = {"laguna": (0, 5, 13)}
_NAMED_BEFORE = {
    **dict.fromkeys(("qwen4_exp_text", "glm5_next_text"), "full_attention"),
    "hy_v4": "deepseek_sparse_attention",
}
_RULES = (_tied_paddle, _layers_apart, _heads_apart, _width_of_heads, _ropes_by_kind, _indexed_layers)
