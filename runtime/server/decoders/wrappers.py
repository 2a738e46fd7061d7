"""Multimodal models: the section that is their language model, and the encoder beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runtime.server.decoders import bailing_hybrid_v3, kimi_k3
from runtime.server.decoders import wrapper_fields as files
from runtime.server.decoders.fields import architecture_of, is_vl_2
from runtime.server.decoders.inkling import NAME as INKLING
from runtime.server.decoders.mllama import NAME as MLLAMA
from runtime.server.decoders.moss_vl import NAME as MOSS_VL
from runtime.server.decoders.muse_glimmer import NAME as MUSE
from runtime.server.decoders.muse_spark import NAME as SPARK
from runtime.server.decoders.text_names import as_served, called_in, of_text
from runtime.server.encoders import (
    bailing,
    dasheng,
    deepseek,
    deepseek_vl2,
    dots,
    dots_note,
    ernie,
    gemma3n,
    gemma4,
    glm,
    inkling,
    intern,
    janus,
    llama4,
    llava,
    mimo,
    minicpmo,
    minicpmv,
    minimax,
    mllama,
    moonvit,
    moss_vl,
    muse,
    muse_spark,
    nemotron,
    nvila,
    phi4mm,
    pixtral,
    qwen,
    siglip,
    step,
    whisper,
)
from runtime.server.encoders.weight import Encoder, EncoderWeight, QuantizesText
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]
_OF_THE_WHOLE = ("quantization_config", "dtype", "torch_dtype", "canvas_length")
_TIES, _TIED = "tie_word_embeddings", "tie_embedding"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """`text_type`: of a section that does not name its own, or its architecture or version does, where those
    are told. `section` may be missing where `is_flat`, and has no name where it always is. All that is served
    may stand `inside` of one section."""

    model_type: str
    text_type: str
    weights: Callable[[HF, int], Iterable[EncoderWeight]]
    may_be_whole: bool = False
    is_quantized: bool = False
    section: str = "text_config"
    inside: str | None = None
    is_flat: bool = False
    by_architecture: Mapping[str, str] = field(default_factory=dict)
    by_version: Mapping[str, str] = field(default_factory=dict)
    text_defaults: HF = field(default_factory=dict)  # where the class has others than the text's own family
    # Who says whether the head is the embedding, where SGLang looks.
    tied_by: Literal["whole", "either", "section", "both", "unless told", "nobody"] = "section"
    served: tuple[str, ...] = ()  # families of text, where SGLang's class has its own for one alone
    is_named: bool = True  # by its section, where that says so
    needs: tuple[str, ...] = ()  # what its text has to tell, as its class is in a file beside it
    beside: tuple[str, ...] = ()  # what else its encoder has, told elsewhere
    is_prefixed: bool = True  # its modules' names, where SGLang compares them with those of a list
    # Nothing of the text may be told apart, as SGLang's class has other names for it than lists have.
    is_alike: bool = False
    hides_text: bool = False  # in a part where SGLang does not look for layers
    reads_another: bool = False  # checkpoint, which its file names, for its tower
    is_plain_alone: bool = False
    quantizes_text: QuantizesText = None
    is_split_later: bool = False  # than its class is
    is_made_twice: bool = False  # the text and what it sees with, of which the second is kept
    # Matrices of its tower as SGLang calls them: all are plain in a checkpoint, so a list has to mean them.
    tower: tuple[str, ...] = ()
    reads_plain: bool = False  # what of it is quantized in fp8 or int8 all the same: it makes noise


_QUANTIZED: Mapping[str, Any] = {"is_quantized": True}
_EITHER: Mapping[str, Any] = {"is_quantized": True, "may_be_whole": True}
_FLAT: Mapping[str, Any] = {"is_flat": True, "tied_by": "either"}

WRAPPERS: Mapping[str, Wrapper] = {
    one.model_type: one
    for one in (
        Wrapper("qwen2_vl", "qwen2_vl_text", qwen.qwen2_vl, **_QUANTIZED, **_FLAT),
        Wrapper("qwen2_5_vl", "qwen2_5_vl_text", qwen.qwen2_5_vl, **_EITHER, **_FLAT),
        Wrapper("qwen3_vl", "qwen3_vl_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper("qwen3_vl_moe", "qwen3_vl_moe_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper("qwen3_omni_moe", "qwen3_omni_moe_text", qwen.qwen3_omni, **files.QWEN_3_OMNI),
        Wrapper(
            "qwen3_asr",
            "qwen3",
            qwen.qwen3_asr,
            inside="thinker_config",
            served=("qwen3",),
            is_alike=True,
        ),
        Wrapper("pointsv1.5_chat", "qwen2", qwen.points, **files.POINTS),
        Wrapper("sarashina2_vision", "llama", qwen.sarashina, **files.SARASHINA),
        Wrapper("nvila", "qwen2", nvila.nvila, **files.NVILA),
        Wrapper("nvila_lite", "qwen2", nvila.nvila_lite, **files.NVILA),
        Wrapper("phi4mm", "phi3", phi4mm.phi4mm, **files.PHI4MM),
        Wrapper("multi_modality", "llama", janus.janus, **files.JANUS),
        Wrapper("midashenglm", "qwen2", dasheng.midasheng, **files.MIDASHENG),
        Wrapper("qwen2_audio", "qwen2", whisper.qwen2_audio, **files.QWEN2_AUDIO),
        Wrapper("glmasr", "llama", whisper.glm_asr, **files.GLM_ASR),
        Wrapper("voxtral", "llama", whisper.voxtral, **files.VOXTRAL),
        Wrapper("qwen3_5", "qwen3_5_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper("qwen3_5_moe", "qwen3_5_moe_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper("qwen4_exp", "qwen4_exp_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper("glm4v", "glm4v_text", glm.glm4v, **_EITHER, tied_by="either"),
        Wrapper("glm4v_moe", "glm4v_moe_text", glm.glm4v, **_EITHER, tied_by="either"),
        Wrapper("glm46v", "glm4v_text", glm.glm4v, **_EITHER, tied_by="whole"),
        Wrapper("glm_ocr", "glm_ocr_text", glm.glm_ocr, **_EITHER, tied_by="either"),
        Wrapper("glm5_next", "glm5_next_text", glm.glm5_next, **_EITHER, **_FLAT),
        Wrapper("mistral3", "mistral", pixtral.mistral3, **_QUANTIZED, is_alike=True),
        Wrapper("llava", "llama", pixtral.llava, **_QUANTIZED, **files.LLAVA),
        Wrapper("lighton_ocr", "qwen3", pixtral.lighton_ocr, served=("qwen3",), is_alike=True),
        Wrapper("pixtral", "", pixtral.native, by_architecture=files.LARGE_3, is_prefixed=False),
        Wrapper("llama4", "llama4_text", llama4.llama4, **_QUANTIZED),
        Wrapper("mllama", MLLAMA, mllama.mllama, served=(MLLAMA,), **files.MLLAMA),
        Wrapper("moss_vl", MOSS_VL, moss_vl.moss_vl, **files.MOSS_VL),
        Wrapper("gemma3", "gemma3_text", siglip.gemma3, **_QUANTIZED),
        Wrapper("gemma3n", "gemma3n_text", gemma3n.gemma3n, **_QUANTIZED, **files.GEMMA3N),
        Wrapper("gemma4", "gemma4_text", gemma4.gemma4, **_QUANTIZED),
        Wrapper("diffusion_gemma", "diffusion_gemma_text", gemma4.gemma4, tied_by="both"),
        Wrapper("gemma4_unified", "gemma4_text", gemma4.gemma4_unified, is_named=False, needs=files.UNIFIED),
        Wrapper("cohere2_vision", "cohere2", siglip.cohere2_vision, tied_by="both", served=("cohere2_moe",)),
        Wrapper(
            "lfm2_vl",
            "lfm2",
            siglip.lfm2_vl,
            **_QUANTIZED,
            tied_by="unless told",
            served=("lfm2",),
            is_alike=True,
        ),
        Wrapper("step3p7", "step3p5", step.step3p7),
        Wrapper("step3_vl", "step3_text", step.step3_vl, served=("step3_text",), is_alike=True),
        Wrapper(
            "step_robotics",
            "qwen3",
            step.step_vl,
            **_QUANTIZED,
            served=("qwen3",),
            is_alike=True,
            tower=files.STEP,
        ),
        Wrapper("dots_ocr", "qwen2", dots.dots_ocr, is_flat=True),
        Wrapper("dots_vlm", "dots_vlm_text", dots.dots_vlm, section="", is_flat=True, needs=files.DOTS_VLM),
        Wrapper(
            "deepseek_vl_v2",
            "deepseek",
            deepseek.deepseek_ocr,
            section="language_config",
            tied_by="either",
            is_named=False,
            needs=files.OF_THE_POOL,
            text_defaults=files.DEEPSEEK_OCR,
            **files.TEXT_ALONE,
        ),
        Wrapper("unlimited-ocr", "deepseek", deepseek.unlimited_ocr, **files.UNLIMITED_OCR),
        Wrapper("bailing_moe_v3_vl", bailing_hybrid_v3.NAME, bailing.ling_3_vl, **files.LING_3_VL),
        Wrapper("bailingmm_moe_v2_lite", "bailing_moe_v2", bailing.ming, **_EITHER, **files.MING),
        Wrapper("paddleocr_vl", "paddleocr_vl_text", siglip.paddle_ocr, **files.PADDLE_OCR),
        Wrapper("dots3_note", "dots3_note_text", dots_note.dots_note, is_flat=True),
        Wrapper(
            "minimax_m3_vl",
            "minimax_m3_vl_text",
            minimax.minimax_m3,
            may_be_whole=True,
            tied_by="either",
            is_named=False,
        ),
        Wrapper("minicpmv", "", minicpmv.resampled, **files.MINICPM_V),
        Wrapper("minicpmo", "qwen2", minicpmo.minicpmo, **files.MINICPM_O),
        *(
            Wrapper(name, "qwen3_5_text", minicpmv.folded, **files.MINICPM_V_4_6)
            for name in ("minicpmv4_6", "minicpmv4_7")
        ),
        Wrapper("muse_glimmer", MUSE, muse.muse_glimmer, **_QUANTIZED, tied_by="either", is_named=False),
        Wrapper("inkling_mm_model", INKLING, inkling.inkling, is_named=False, is_prefixed=False),
        Wrapper("muse_spark", SPARK, muse_spark.muse_spark, may_be_whole=True, **files.MUSE_SPARK),
        Wrapper("kimi_k25", "kimi_k2", moonvit.kimi_k25, may_be_whole=True),
        Wrapper("kimi_k3", kimi_k3.NAME, moonvit.kimi_k3, is_named=False, is_prefixed=False),
        Wrapper("kimi_vl", "deepseek_v3", moonvit.kimi_vl, may_be_whole=True, text_defaults=files.KIMI_VL),
        Wrapper("locateanything", "qwen2", moonvit.locate_anything, **files.LOCATE_ANYTHING),
        Wrapper(
            "internvl_chat",
            "",
            intern.internvl_chat,
            may_be_whole=True,
            section="llm_config",
            tied_by="nobody",
            by_architecture=files.LLMS,
        ),
        Wrapper("interns1", "", intern.interns1, by_architecture=files.S1),
        Wrapper(
            "interns1_pro",
            "interns1_pro_text",
            qwen.interns1_pro,
            may_be_whole=True,
            tied_by="whole",
            is_named=False,
        ),
        Wrapper("intern_s2_preview", "qwen3_5_moe_text", qwen.qwen3_vl, may_be_whole=True, tied_by="whole"),
        Wrapper(
            "interns2_mobius",
            "interns2_mobius_text",
            qwen.qwen3_vl,
            may_be_whole=True,
            tied_by="whole",
            is_named=False,
        ),
        Wrapper("ernie4_5_moe_vl", "ernie4_5_vl_moe_text", ernie.ernie_vl, is_flat=True, needs=files.ERNIE),
        Wrapper(
            "mimo_v2",
            "mimo_v2_flash",
            mimo.mimo_v2,
            may_be_whole=True,
            is_flat=True,
            needs=files.MIMO_V2,
            beside=("its audio_tokenizer",),
        ),
        Wrapper("mimo_v2_asr", "mimo", mimo.mimo_v2_asr, **files.MIMO_V2_ASR),
        *(Wrapper(name, "nemotron_h", nemotron.nemotron, section="llm_config") for name in files.NEMOTRONS),
    )
}


# Its checkpoints call themselves so, and a text that has no name is then Mistral's.
_AS_MISTRAL_3 = replace(WRAPPERS["lighton_ocr"], model_type="mistral3", text_type="mistral")
# DeepSeek-VL2 has latents, and its smallest none: then its text is DeepSeek-OCR's, and has no method.
_VL_2_TINY = replace(WRAPPERS["deepseek_vl_v2"], weights=deepseek_vl2.deepseek_vl2, quantizes_text=None)
_VL_2 = replace(_VL_2_TINY, text_type="deepseek_vl2_text", needs=(), text_defaults=files.DEEPSEEK_VL2)
# LLaVA as its own code writes it: a Llama's, Qwen2's or Mistral's file that says llava.
_LLAVAS = {
    name: Wrapper("llava", text, llava.llava_of_its_own, **files.LLAVAS_OWN)
    for name, text in files.LLAVA_TEXTS.items()
}


def wrapper_of(hf: HF) -> Wrapper | None:
    kind = str(hf.get("model_type", ""))
    if is_vl_2(hf):
        told = hf.get("language_config")
        return _VL_2 if not isinstance(told, Mapping) or told.get("use_mla", True) else _VL_2_TINY
    if kind == "mistral3" and architecture_of(hf) == "LightOnOCRForConditionalGeneration":
        return _AS_MISTRAL_3
    if kind == "qwen2" and architecture_of(hf) == "MiMoV2ASRForCausalLM":
        return WRAPPERS["mimo_v2_asr"]
    if kind == "llava" and architecture_of(hf) in _LLAVAS:
        return _LLAVAS[architecture_of(hf)]
    return WRAPPERS.get(kind)


def encoder_of(wrapper: Wrapper, hf: HF, text_width: int) -> Encoder | None:
    weights = tuple(wrapper.weights(served_part(wrapper, hf), text_width))
    told = (
        wrapper.may_be_whole,
        wrapper.is_quantized,
        wrapper.beside,
        wrapper.hides_text,
        wrapper.reads_another,
        wrapper.is_plain_alone,
        wrapper.quantizes_text,
        wrapper.is_split_later,
        wrapper.is_made_twice,
    )
    return Encoder(weights, *told) if weights else None


def served_part(wrapper: Wrapper, hf: HF) -> HF:
    """Where its sections stand."""
    if wrapper.inside is None:
        return hf
    found = _section(wrapper, hf.get(wrapper.inside), wrapper.inside)
    if found.get("quantization_config") is not None:
        raise Unsupported(f"config.json: {wrapper.inside}: quantization_config: SGLang reads none there")
    return {**{name: hf[name] for name in _OF_THE_WHOLE if hf.get(name) is not None}, **found}


def _section(wrapper: Wrapper, found: Any, name: str) -> HF:
    if found is None:
        raise Unsupported(f"config.json: {wrapper.model_type} without a {name}")
    if not isinstance(found, Mapping):
        raise ConfigError(f"config.json: {name} is {repr(found)[:60]}: an object is needed")
    return found


def text_part(wrapper: Wrapper, hf: HF) -> HF:
    """The language model as a config.json of its own."""
    hf = served_part(wrapper, hf)
    found = hf.get(wrapper.section)
    if found is None and wrapper.is_flat:
        found = {name: value for name, value in hf.items() if name not in ("model_type", "vision_config")}
    found = _section(wrapper, found, wrapper.section)
    missing = next((name for name in wrapper.needs if name not in found), None)
    if missing is not None:
        raise Unsupported(
            f"config.json: {missing} is missing: what it is then, the checkpoint's own class says"
        )
    text = {"model_type": wrapper.text_type, **wrapper.text_defaults, **found}
    if wrapper.by_architecture:
        text["model_type"] = _of_architecture(wrapper, found)
    if wrapper.by_version:
        text["model_type"] = _of_version(wrapper, found)
    if not wrapper.is_named:
        text["model_type"] = wrapper.text_type
    if wrapper.served and text["model_type"] not in wrapper.served:
        where = f"config.json: {wrapper.section}: model_type is {repr(text['model_type'])[:60]}"
        raise Unsupported(f"{where}: SGLang has {wrapper.model_type} with {', '.join(wrapper.served)} alone")
    text |= {name: hf[name] for name in _OF_THE_WHOLE if hf.get(name) is not None and name not in found}
    if wrapper.tied_by == "whole" or (wrapper.tied_by == "either" and not found.get(_TIES)):
        text[_TIES] = hf.get(_TIES) or False
    if wrapper.tied_by == "nobody" or (wrapper.tied_by == "both" and hf.get(_TIES) is False):
        text[_TIES] = False
    if wrapper.tied_by == "unless told":
        told = [hf[name] for name in (_TIED, _TIES) if hf.get(name) is not None]
        text |= {_TIED: None, _TIES: told[0] if told else True}
    return text


def as_listed(wrapper: Wrapper, text: HF) -> tuple[HF, HF]:
    """With the lists of its quantization as its file means them, and as SGLang's class reads them."""
    section = text.get("quantization_config")
    if not wrapper.is_prefixed or not isinstance(section, Mapping):
        return text, text
    meant = {**text, "quantization_config": of_text(section)}
    called = called_in(wrapper.model_type, str(section.get("quant_method", "")))
    if wrapper.is_alike or called is None:
        return meant, meant
    return meant, {**text, "quantization_config": as_served(section, called)}


def _of_architecture(wrapper: Wrapper, text: HF) -> str:
    listed = text.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else listed
    if not isinstance(name, str) or name not in wrapper.by_architecture:
        known = ", ".join(wrapper.by_architecture)
        where = f"config.json: {wrapper.section}: architectures"
        raise Unsupported(f"{where} is {repr(listed)[:60]}: this runtime knows {known}")
    return wrapper.by_architecture[name]


def _of_version(wrapper: Wrapper, text: HF) -> str:
    """A number or a text, as SGLang's class writes it."""
    told = text.get("version")
    if str(told) not in wrapper.by_version:
        known = ", ".join(wrapper.by_version)
        raise Unsupported(
            f"config.json: version is {repr(told)[:60]}: SGLang has {wrapper.model_type} {known}"
        )
    return wrapper.by_version[str(told)]
