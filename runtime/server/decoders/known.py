"""Every family that this runtime builds, and the reading of a config.json by its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, islice

from runtime.server.architectures import HYBRID_SWA, HYBRID_SWA_TYPES, WINDOWS_ALONE
from runtime.server.call_rules import gates_residuals, has_loose_experts_in_file
from runtime.server.config import ModelConfig
from runtime.server.declared import (
    declared_block,
    declared_dtype,
    declared_quantization,
    declared_weights,
)
from runtime.server.decoders import (
    afmoe,
    apertus,
    arcee,
    baichuan,
    bailing,
    bailing_hybrid,
    bailing_hybrid_v3,
    beam,
    bert,
    chatglm,
    cohere,
    cwm,
    dbrx,
    deepseek,
    deepseek_moe,
    deepseek_v4,
    dots1,
    dots3,
    ernie,
    exaone,
    falcon_h1,
    gemma,
    gemma3n,
    gemma4,
    gigachat,
    glm,
    glm5_next,
    gpt2,
    gpt_bigcode,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    granite_hybrid,
    granite_shared,
    grok,
    hunyuan,
    hy_v3,
    hy_v4,
    inkling,
    internlm2,
    internlm3,
    interns1_pro,
    iquest_loopcoder,
    iquest_q1,
    iquestcoder,
    jais2,
    jet_nemotron,
    k2_horizon,
    kimi_k3,
    kimi_linear,
    laguna,
    lfm2,
    llama,
    llama4,
    longcat,
    mamba,
    mellum,
    mimo_v2,
    minicpm,
    minicpm3,
    minicpm_sala,
    minimax,
    minimax_m3,
    ministral3,
    mistral4,
    mixtral,
    mllama,
    moss_vl,
    muse_glimmer,
    muse_spark,
    nanbeige,
    nemotron_h,
    nemotron_h_puzzle,
    nemotron_nas,
    of_transformers,
    olmo,
    opt,
    orion,
    persimmon,
    phi,
    phi1,
    phi3_small,
    phimoe,
    qwen,
    qwen4,
    qwen_1,
    qwen_hybrid,
    sarvam_mla,
    sdar,
    solar,
    spark2_5,
    stablelm,
    starcoder2,
    step,
    step3,
    teleflm,
    xverse,
    xverse_moe,
    zaya,
)
from runtime.server.decoders.drafts import is_draft, read_draft
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields, architecture_of
from runtime.server.decoders.routes import unchosen
from runtime.server.decoders.scores import without_head
from runtime.server.decoders.served_classes import check_class
from runtime.server.decoders.text_names import BACKBONE, of_backbone, unclear_expressions
from runtime.server.decoders.wrappers import WRAPPERS, Wrapper, as_listed, encoder_of, text_part, wrapper_of
from runtime.server.errors import Unsupported
from runtime.server.formats.kinds import Kind
from runtime.server.linears import experts_listed
from runtime.server.modelopt_mxfp8 import meant_otherwise, with_served
from runtime.server.recurrent import AddedConvolutionsConfig
from runtime.server.served_names import disagreements, kept_plain, mapped, plain_loose, told_otherwise
from runtime.server.sizing import HYBRID_TYPES

_MODULES = (
    *(bailing_hybrid, bailing_hybrid_v3, nemotron_h_puzzle, zaya),
    *(llama, mixtral, qwen, deepseek, glm, gpt_oss, minimax, ernie, olmo, exaone, phi, mellum),
    *(qwen_hybrid, nemotron_h, gemma, granite, llama4, ministral3, hunyuan, step, arcee, granite_hybrid),
    *(lfm2, cohere, deepseek_v4, mimo_v2, bailing, kimi_linear, internlm2, hy_v3, laguna, falcon_h1),
    *(orion, baichuan, xverse, xverse_moe, teleflm, qwen_1, spark2_5),
    *(longcat, minimax_m3, gemma4, afmoe, phimoe, granite_shared, glm5_next, kimi_k3, hy_v4, qwen4, mistral4),
    *(starcoder2, internlm3, sdar, interns1_pro, sarvam_mla, grok, nemotron_nas, stablelm, dots3),
    *(iquestcoder, apertus, deepseek_moe, minicpm, dbrx, gigachat),
    *(muse_glimmer, iquest_q1, phi1, persimmon, solar, step3),
    *(k2_horizon, beam, bert, muse_spark, minicpm3, minicpm_sala, chatglm, inkling),
    *(gpt2, opt, gpt_bigcode, gptj, nanbeige, gemma3n, mllama, moss_vl, mamba),
    *(iquest_loopcoder, jet_nemotron, of_transformers, phi3_small, gpt_neox, jais2, cwm, dots1),
)
FAMILIES: dict[str, Family] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}
# Whatever model_type a file tells.
_BY_ARCHITECTURE = {
    **dict.fromkeys(longcat.ARCHITECTURES, longcat.MODEL_TYPE),
    **dict.fromkeys(grok.ARCHITECTURES, grok.NAME),
}
# Of what quantizes a matrix: this runtime's own kernels.
_COMPUTED = ("fp8", "nvfp4", "mxfp4", "mxfp4_beside_fp8")
_AS_MANY_VALUES = ("fp8", "int8")  # under the same name, as a plain matrix
_HEADS = ("lm_head", "head")  # plain in any case


def family_of(hf: HF) -> Family:
    model_type = _BY_ARCHITECTURE.get(architecture_of(hf), str(hf.get("model_type", "")))
    if model_type not in FAMILIES:
        near = ", ".join(get_close_matches(model_type[:60], sorted({*FAMILIES, *WRAPPERS})))
        known = "docs/models.md lists those that are" + (f", nearest are {near}" if near else "")
        raise Unsupported(f"model_type {model_type[:60]!r} is not supported: {known}")
    family = FAMILIES[model_type]
    return FAMILIES[family.by_architecture.get(architecture_of(hf), model_type)]


def model_config(hf: HF) -> ModelConfig:
    check_class(hf)
    hf = with_served(hf)
    wrapper = wrapper_of(hf)
    told = hf if wrapper is None else text_part(wrapper, hf)
    meant, part = (told, told) if wrapper is None else as_listed(wrapper, told)
    text = replace(_text_model(part, architecture_of(hf)), in_windows=architecture_of(hf) in WINDOWS_ALONE)
    if not _keeps_windows_apart(hf, part) and text.model_type in HYBRID_TYPES:
        text = replace(text, windows_apart=False)
    if wrapper is None:
        return text
    otherwise = () if part is meant else told_otherwise(text, declared_weights(meant, architecture_of(hf)))
    unclear = _unclear(wrapper, told) if wrapper.is_prefixed else ()
    said = chain(unclear, _of_wrapper(wrapper, text), otherwise)
    doubts = [f"quantization_config: {one}" for one in islice(said, 1)]
    obstacles = (*text.obstacles, *doubts)
    return replace(text, obstacles=obstacles, encoder=encoder_of(wrapper, hf, text.hidden_size))


def _unclear(wrapper: Wrapper, text: HF) -> Iterator[str]:
    section = text.get("quantization_config")
    for one in unclear_expressions(section) if isinstance(section, Mapping) else ():
        yield (
            f"what {one[:60]!r} means by SGLang's names of {wrapper.model_type} is not known here: "
            "name no model before its layers"
        )


def _of_wrapper(wrapper: Wrapper, text: ModelConfig) -> Iterator[str]:
    if wrapper.is_alike:
        yield from kept_plain(text)
    if text.checkpoint_quantization is not None:
        met = next((one for one in wrapper.tower if _is_lost(wrapper, text.quantized.of_linear([one]))), None)
        if met is not None:
            called = met or "a matrix of its tower, which has no name"
            yield f"no list means {called}, as SGLang calls it: it would be quantized, and is not in a file"


def _is_lost(wrapper: Wrapper, kind: Kind | None) -> bool:
    """A matrix that is plain in a file, and of this kind in SGLang's class."""
    is_as_large = kind is not None and kind.name in _AS_MANY_VALUES and kind.per != "block"
    return kind is not None and not (wrapper.reads_plain and is_as_large)


def _keeps_windows_apart(hf: HF, text: HF) -> bool:
    """is_hybrid_swa_model of srt/configs/model_config.py: by the class that serves, or what a file says."""
    name = architecture_of(hf)
    is_known = not name or name in HYBRID_SWA or hf.get("model_type") in HYBRID_SWA_TYPES
    if text.get("is_hybrid_swa") and not is_known:
        raise Unsupported(
            f"config.json: is_hybrid_swa, of which SGLang's {name[:60]} is not known to keep windows"
        )
    return is_known


def _listed_as(model: ModelConfig, hf: HF) -> HF:
    """Lists of a backbone's layers may call them a model's: SGLang's class takes either."""
    section = hf.get("quantization_config")
    if not model.names.layers.startswith(BACKBONE) or not isinstance(section, Mapping):
        return hf
    return {**hf, "quantization_config": of_backbone(section)}


def _text_model(hf: HF, architecture: str) -> ModelConfig:
    """`architecture`: what serves the whole."""
    model = replace(
        without_head(_read(hf), hf, architecture),
        checkpoint_quantization=declared_quantization(hf),
        quantization_block=declared_block(hf),
        dtype=declared_dtype(hf),
    )
    model = replace(model, obstacles=(*model.obstacles, *unchosen(model.moe)))
    try:
        model = replace(model, quantized=declared_weights(_listed_as(model, hf), architecture))
        parts = (
            _beside_compressed(model),
            _parted(model),
            _ungated(model),
            disagreements(model),
            mapped(model),
            plain_loose(model),
            meant_otherwise(model, hf.get("quantization_config")),
        )
        doubts = [*chain(*parts), *model.quantized.doubts(model.num_layers)]
    except Unsupported as error:
        return replace(model, obstacles=(*model.obstacles, error.message))
    if doubts:
        return replace(model, obstacles=(*model.obstacles, f"quantization_config: {doubts[0]}"))
    model = _experts_alone(model)
    if isinstance(model.recurrent, AddedConvolutionsConfig):
        return inkling.with_packed_experts(model, hf)
    return replace(model, uncomputed=(*model.uncomputed, *_uncomputed(model)))


def _beside_compressed(model: ModelConfig) -> Iterator[str]:
    """SGLang calls DeepSeek-V4's matrices otherwise than transformers, and some otherwise from one release to
    another (wq_a and wkv, or wqkv_a): a list may mean them by any of these names."""
    weights = model.quantized
    if model.compressed is None:
        return
    for name in (*weights.excluded.names, *weights.excluded.patterns, *weights.names, *weights.expressions):
        if name.removeprefix("model.") not in _HEADS:
            yield f"{name[:60]!r} is listed: which of DeepSeek-V4's matrices SGLang takes it for is not known"
    if weights.linear is not None and (weights.linear.name, weights.linear.per) != ("fp8", "block"):
        yield f"how DeepSeek-V4's matrices lie in {weights.linear.name} a {weights.linear.per} is not known"


_WITHOUT_GATES = ("fp8", "mxfp8", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed")


def _ungated(model: ModelConfig) -> Iterator[str]:
    """create_weights of srt/layers/quantization makes two halves of other formats, whatever an expert has."""
    method = model.checkpoint_quantization
    if model.moe is None or model.gated_mlps or method is None or method in _WITHOUT_GATES:
        return
    if any(model.quantized.of_experts(name) is not None for name in experts_listed(model)):
        yield f"SGLang makes experts of {method} with gates, and these have none"


def _experts_alone(model: ModelConfig) -> ModelConfig:
    """Muse Spark's, by names and their parts: its class asks is_layer_skipped, which knows no stars."""
    weights = model.quantized
    if model.checkpoint_quantization is None or not gates_residuals(model):
        return model
    named = (*weights.excluded.names, *weights.excluded.patterns)
    excluded = replace(weights.excluded, way="paths", names=named, patterns=(), tails=())
    return replace(model, quantized=replace(weights, linear=None, excluded=excluded))


def _parted(model: ModelConfig) -> Iterator[str]:
    """Of an indexer's matrix and that of the heads that it chooses for, which a server makes one."""
    for layer, kind in enumerate(model.attention_kinds):
        if kind in model.attention and model.attention[kind].blocks is not None:
            name = f"{model.names.layers}.{layer}.{model.names.attention}"
            parts = ("q_proj", "k_proj", "v_proj"), ("index_q_proj", "index_k_proj")
            plain = {model.excluded.linear([f"{name}.{one}" for one in part]) for part in parts}
            if len(plain) > 1:
                yield f"one of {name}'s matrices is excluded, the other is not: here both are, or none"


def _read(hf: HF) -> ModelConfig:
    if is_draft(hf):
        return read_draft(hf)
    family = family_of(hf)
    return family.read(Fields(hf, family.defaults))


def _uncomputed(model: ModelConfig) -> Iterator[str]:
    """How large these are is known, and no kernel here multiplies them."""
    yield from _plain_experts(model)
    weights = model.quantized
    for kind in dict.fromkeys((weights.linear, weights.experts, *weights.of_expressions, *weights.of_names)):
        if kind is not None and not _is_computed(kind):
            yield f"quantization_config: this runtime has no layers in {kind.name} a {kind.per}"
    if not model.tie_word_embeddings and weights.of_head() is not None:
        yield "quantization_config: lm_head is quantized: this runtime has no quantized head"


def _is_computed(kind: Kind) -> bool:
    if kind.name == "fp8":
        return kind.per == "block" or (kind.per == "tensor" and kind.is_static)
    return kind.name in _COMPUTED and kind.has_inputs and not kind.is_awq


def _plain_experts(model: ModelConfig) -> Iterator[str]:
    """SGLang then runs these layers by another kernel than the rest."""
    if has_loose_experts_in_file(model, model.checkpoint_quantization) or gates_residuals(model):
        return
    weights = model.quantized
    names = experts_listed(model)
    plain = next((name for name in names if weights.experts and weights.of_experts(name) is None), None)
    if plain is not None:
        yield f"quantization_config: {plain} are excluded: this runtime has no plain experts beside quantized"
