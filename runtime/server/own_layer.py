"""Drafts that are a layer of the target's own checkpoint: which classes have one, and what it is.

_config_draft_model of srt/configs/model_config.py, and srt/models/*_nextn.py, *_mtp.py, ernie4_eagle.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runtime.server.backends import Number
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.declared import HEADS_SINCE, MODELOPTS
from runtime.server.errors import Unsupported
from runtime.server.formats.assigned import Quantized
from runtime.server.named_classes import named_until
from runtime.server.shape import Server

_FIRST: Number = (0, 5, 12)
_MADE_ANEW = (0, 5, 18)  # in nvfp4, of a plain file
_SINCE: Mapping[Number, str] = {
    _FIRST: """
        BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM DeepseekV32ForCausalLM
        DeepseekV3ForCausalLM DeepseekV4ForCausalLM Ernie4_5_MoeForCausalLM ExaoneMoEForCausalLM
        Glm4MoeForCausalLM GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration HYV3ForCausalLM
        InternS2PreviewForConditionalGeneration LongcatFlashForCausalLM MiMoForCausalLM
        MiMoV2FlashForCausalLM MiMoV2ForCausalLM NemotronHForCausalLM Qwen3NextForCausalLM
        Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Step3p5ForCausalLM""",
    (0, 5, 13): """
        Glm4MoeLiteForCausalLM NemotronHPuzzleForCausalLM Qwen3MoeForCausalLM
        Step3p7ForConditionalGeneration""",
    (0, 5, 16): "InklingForConditionalGeneration",
    (0, 5, 17): "Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM",
    (0, 5, 18): "InternS2MobiusForConditionalGeneration",
    (0, 5, 19): "BailingMoeV3ForCausalLM Dots3NoteForCausalLM",
    (0, 5, 20): """
        Glm5NextForConditionalGeneration HYV4ForCausalLM NemotronH_Omni_Reasoning_V3
        Qwen4ExpForConditionalGeneration""",
    (0, 5, 21): "GigaChat35ForCausalLM",
    (0, 5, 22): "ExaoneMoeForCausalLM",
}

# Whose file has to say that there is one: load_weights of srt/models, for a layer that drafts
_COUNT_THEIR_OWN = """
    BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
    DeepseekV32ForCausalLM DeepseekV3ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration"""
# ... whose pool has as many layers, or all of the model's where a file says nothing
_POOLED_AS_TOLD = "Ernie4_5_MoeForCausalLM LongcatFlashForCausalLM MiMoForCausalLM"


def loads_one(architecture: str) -> bool:
    return architecture in _COUNT_THEIR_OWN.split()


def other_count(checkpoint: Checkpoint) -> str:
    """What a file says of its layers that draft, where that is not one and SGLang does not say so itself."""
    if not loads_one(checkpoint.architecture) and checkpoint.architecture not in _POOLED_AS_TOLD.split():
        return ""
    usual = 1 if checkpoint.architecture == "LongcatFlashForCausalLM" else None
    told = checkpoint.get("num_nextn_predict_layers", usual)
    return "" if told == 1 else f"num_nextn_predict_layers is {'not told' if told is None else told}"


def has_own_layer(architecture: str, release: Number) -> bool:
    """Of any other class a server without --speculative-draft-model-path loads the whole model twice."""
    return architecture in named_until(release, _SINCE)


@dataclass(frozen=True, slots=True)
class OwnLayer:
    """`name`: by which a checkpoint's lists are asked for it, by no number but that; `head`: for its head.

    `mlp`: whatever those of the model's layers are, or as the first of them, or the last. `ties`: its head is
    its embedding where the model's is. `ends_normed`: before the head. `plain_in`: methods of which it is in
    the model's dtype, and with `plain_head` that, too."""

    name: str = "model.decoder"
    head: str = "lm_head"
    mlp: Literal["experts", "dense", "as the first", "as the last"] = "experts"
    ties: bool = False
    ends_normed: bool = True
    plain_in: tuple[str, ...] = ()
    plain_head: bool = False


_IN_FP4 = ("modelopt_fp4",)
_SHARED = "model.shared_head.head"
_DEEPSEEK = OwnLayer(head=_SHARED, plain_in=_IN_FP4)
_BEHIND_NORMS = OwnLayer("model.layers.0", mlp="as the first")
_QWEN_35 = OwnLayer(
    "mtp.layers.0", mlp="as the last", ties=True, plain_in=(*_IN_FP4, "modelopt_mixed"), plain_head=True
)
_MIXED_IN_QUARK = ("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa")
_USUAL = OwnLayer(mlp="as the last")
_OF_TWO_THINGS = ("mimo_v2_flash", "step3p5")
_DENSE = (*_OF_TWO_THINGS, "longcat_flash")
_KINDS = {"experts": "moe", "dense": "dense"}
_LAYERS = {
    **dict.fromkeys(_MIXED_IN_QUARK, _DEEPSEEK),
    **dict.fromkeys(("glm4_moe", "glm4_moe_lite", "bailing_moe", "bailing_moe_v2"), _DEEPSEEK),
    "hy_v3": OwnLayer(),
    **dict.fromkeys(("qwen3_moe", "exaone_moe"), _BEHIND_NORMS),
    "qwen3_next": OwnLayer("model.layers.0", _SHARED),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), _QWEN_35),
    "mimo": OwnLayer("", "", mlp="dense"),
    "ernie4_5_moe": OwnLayer("model.mtp_block", mlp="dense", ties=True, ends_normed=False),
    # ... whose model has none without experts, and those that this runtime does not compute
    **dict.fromkeys(_DENSE, OwnLayer(mlp="dense")),
}


def drafts_without_experts(model: ModelConfig) -> bool:
    """Whatever its layers have: a layer of those that follow, which is none of the model's."""
    return model.model_type in _DENSE


def layer_of(model: ModelConfig) -> OwnLayer:
    return _LAYERS.get(model.model_type, _USUAL)


def drafting(model: ModelConfig, runtime: RuntimeConfig) -> ModelConfig:
    """As which a draft's layer is made, one of those of this model."""
    own, told = layer_of(model), model.quantized
    if model.checkpoint_quantization in MODELOPTS and runtime.release.number < HEADS_SINCE:
        told = replace(told, head=None)
    if has_plain_layer(model, runtime):
        told = Quantized(head=None if own.plain_head else told.of_head(own.head))
        model = replace(model, checkpoint_quantization=None)
    if model.mla is not None and model.mla.indexer is not None:
        model = replace(model, mla=replace(model.mla, indexer=replace(model.mla.indexer, sharing=())))
        if model.model_type == "hy_v4":  # srt/models/hunyuan_v4_nextn.py: of one stream
            model = replace(model, streams=None)
    names = replace(model.names, the_layer=own.name, the_head=own.head)
    ties = model.tie_word_embeddings and (own.ties or own is _USUAL)
    kinds = _kinds(model, own)
    return replace(model, quantized=told, layer_kinds=kinds, names=names, tie_word_embeddings=ties)


def _kinds(model: ModelConfig, own: OwnLayer) -> tuple[str, ...]:
    if own.mlp not in _KINDS or model.shortcut:
        return model.layer_kinds
    if own.mlp == "experts" and model.moe is None:
        raise Unsupported(f"{model.model_type} with drafts: they have experts, and config.json tells of none")
    return tuple("none" if kind == "none" else _KINDS[own.mlp] for kind in model.layer_kinds)


def drafting_layer(model: ModelConfig) -> int:
    """Which of the model's it is like: the last that keeps tokens and has an MLP; of two halves, one without
    experts."""
    if model.model_type in _OF_TWO_THINGS:
        raise Unsupported(
            f"{model.model_type} with drafts: their layers are of a kind that the model has none of"
        )
    if model.streams is not None:  # srt/models/deepseek_v4_nextn.py: a window alone, two matrices, a head
        raise Unsupported(f"{model.model_type} with drafts: how they mix its streams is not known here")
    if layer_of(model).mlp == "as the first":
        return 0
    whole = (i for i in range(model.num_layers) if model.keeps_tokens(i) and model.layer_kinds[i] != "none")
    last = max(whole, default=None)
    if last is None:
        raise Unsupported(
            f"{model.model_type} with drafts: they are several layers of one thing each, which this runtime "
            "does not compute"
        )
    return last


def one_layer(model: ModelConfig, runtime: RuntimeConfig) -> ModelConfig:
    """That layer as a model by itself."""
    drawn = drafting(model, runtime)
    if drawn.shortcut:
        return replace(drawn, layer_kinds=("dense",) * drawn.num_layers)
    at = slice(layer := drafting_layer(drawn), layer + 1)
    return replace(
        drawn,
        num_layers=1,
        attention_kinds=drawn.attention_kinds[at],
        layer_kinds=drawn.layer_kinds[at],
        caps=drawn.caps[at],
        mlp_sizes=drawn.mlp_sizes[at],
        expert_sizes=drawn.expert_sizes[at],
    )


def own_layer(server: Server, file: Checkpoint, target: ModelConfig, draft: ModelConfig) -> ModelConfig:
    """What its server drafts with, where that is a layer of its target: `draft` is what a `file` of its own
    says, else the target."""
    architecture = file.architecture
    algorithm = None if server.speculative is None else server.speculative.algorithm
    if algorithm != "EAGLE":
        raise Unsupported(f"{algorithm} with such a draft is not known here")
    if not has_own_layer(architecture, server.release.number):
        again = "" if server.asked.speculative_draft_model_path else ", and the whole model is loaded again"
        raise Unsupported(f"SGLang {server.release.version}'s {architecture} has no layer that drafts{again}")
    if target.model_type in _MIXED_IN_QUARK and target.checkpoint_quantization == "quark":
        raise Unsupported("quantization quark: its first matrix is quantized, too, and here it is plain")
    found = one_layer(target, server.runtime)
    if draft is not target and one_layer(draft, server.runtime) != found:
        raise Unsupported("its config.json tells of another layer than its target's")
    return found


def otherwise(server: Server, file: Checkpoint) -> str | None:
    """What its draft is told beside, by which it is not held as its target's layers are; a `file` of its own,
    or its target's, may tell of several."""
    draft, told = server.draft, "the draft's layer is held as its target's are, whatever {} says"
    if draft is None:
        return None
    if other := other_count(file):
        return f"config.json: {other}, and its pool is of one layer here"
    if draft.moe_runner_backend != server.moe_runner_backend:
        return told.format("--speculative-moe-runner-backend")
    if server.as_draft().moe_a2a_backend != server.moe_a2a_backend:
        return told.format("--speculative-moe-a2a-backend")
    added = draft.quantization is not None and server.model_quantization is None
    return told.format("--speculative-draft-model-quantization") if added else None


def has_plain_layer(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Whether the draft's layer is in the model's dtype, whatever the checkpoint says of it."""
    own, one = layer_of(model), runtime.speculative
    in_file = model.checkpoint_quantization is not None
    if not in_file and one is not None and one.plain:
        return True
    if own is _QWEN_35 and not in_file and runtime.release.number >= _MADE_ANEW:
        return False
    return (runtime.quantization or model.checkpoint_quantization) in own.plain_in
