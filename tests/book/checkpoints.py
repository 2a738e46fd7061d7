"""A config.json of every family that the runtime builds: as its config class has it, and a small one. What is
there stays; a new family's is added.

python -m tests.book.checkpoints
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

import transformers
from transformers.models.auto import modeling_auto as auto

from runtime.server.decoders.known import FAMILIES, model_config
from runtime.server.decoders.served_classes import SERVED
from runtime.server.decoders.wrappers import WRAPPERS
from runtime.server.errors import ConfigError
from tests.book.cases import CHECKPOINTS, checkpoints
from tests.memory.checkpoints import checkpoints as published
from tests.runtime import families
from tests.runtime.classless import CLASSLESS
from tests.runtime.config_files import config_file
from tests.runtime.published_classes import CLASSES

# What no rule looks at, and what depends on transformers' version.
_LEFT_OUT = (
    *("_name_or_path", "add_cross_attention", "attention_dropout", "bos_token_id", "chunk_size_feed_forward"),
    *("eos_token_id", "id2label", "initializer_range", "is_decoder", "is_encoder_decoder", "label2id"),
    *("output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "return_dict"),
    *("transformers_version", "use_cache"),
)

_OF_A_TOWER = ("abs_posemb", "cls_token", "rope2d", "ln_pre", "ln_post")


def found() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in sorted({*FAMILIES, *WRAPPERS}):
        try:
            yield f"default/{name}", _served(name, config_file(name))
        except (KeyError, TypeError) as error:
            print(f"{name}: transformers has none: {error}")
    for name in families.FAMILIES:
        made = CLASSES.get(name) or getattr(transformers, families.TINY[name].config_class)
        config = made(**families.sizes_of(name))
        yield f"small/{name}", _served(name, json.loads(json.dumps(config.to_dict())))


def around(known: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Wrappers that no config class has as SGLang serves them: another's text, or a class of SGLang's own."""
    text = {"text_config": known["small/cohere2_moe"]}
    yield "small/cohere2_vision", {**known["default/cohere2_vision"], **text}
    vision = {"norm_type": "rms_norm", "num_hidden_layers": 2}
    yield (
        "small/internvl_chat",
        {
            **{"model_type": "internvl_chat", "architectures": ["InternVLChatModel"]},
            **{"vision_config": vision, "llm_config": known["small/qwen3"], "downsample_ratio": 0.5},
        },
    )
    usual = WRAPPERS["kimi_vl"].text_defaults
    text = {name: one for name, one in known["small/deepseek_v3"].items() if usual.get(name) is None}
    yield (
        "small/kimi_vl",
        {
            **{"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"]},
            **{"text_config": text, "vision_config": {}},
        },
    )


def of_other_classes(known: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """... and those whose class is in a file of their checkpoints, or SGLang's for a name of its own."""
    text = known["small/gemma3n_text"]
    yield "small/gemma3n", _around("gemma3n", "Gemma3nForConditionalGeneration", text_config=text)
    text = {**known["small/qwen3_moe"], "architectures": ["Qwen3MoeForCausalLM"]}
    yield "small/interns1", _around("interns1", "InternS1ForConditionalGeneration", text_config=text)
    text = known["small/interns1_pro_text"]
    yield (
        "small/interns1_pro",
        _around("interns1_pro", "InternS1ProForConditionalGeneration", text_config=text),
    )
    text = known["small/qwen3_5_moe_text"]
    served_by = "InternS2PreviewForConditionalGeneration"
    yield "small/intern_s2_preview", _around("intern_s2_preview", served_by, text_config=text)
    mobius, text = "InternS2MobiusForConditionalGeneration", known["small/interns2_mobius_text"]
    yield "small/interns2_mobius", _around("interns2_mobius", mobius, text_config=text)
    text = known["small/kimi_k3_text"]
    yield "small/kimi_k3", _around("kimi_k3", "KimiK3ForConditionalGeneration", text_config=text)
    text, sections = known["small/bailing_hybrid_v3"], {"mrope_section": [2, 1, 1]}
    whole = _around("bailing_moe_v3_vl", "BailingMoeV3VLForConditionalGeneration", text_config=text)
    yield "small/bailing_moe_v3_vl", {**whole, **sections}
    text, sections = {**known["small/bailing_moe_v2"], "head_dim": 16}, {"mrope_section": [2, 1, 1]}
    served_by = "BailingMM2NativeForConditionalGeneration"
    whole = _around("bailingmm_moe_v2_lite", served_by, llm_config=text)
    yield "small/bailingmm_moe_v2_lite", {**whole, **sections}
    nemotrons = {name: name for name in ("NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3")}
    for name, served_by in {**nemotrons, "nemotron_h_omni": "NemotronH_Omni_Reasoning_V3"}.items():
        text, tower = known["small/nemotron_h"], {"args": {"model": "vit_small_patch16_224"}}
        yield f"small/{name}", _around(name, served_by, llm_config=text, vision_config=tower)


def around_qwens(known: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """... and dots.ocr and Step3-VL 10B, whose text has no name of its own."""
    tower = {"embed_dim": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1}
    whole = {**known["small/qwen2"], **_around("dots_ocr", "DotsOCRForCausalLM")}
    yield "small/dots_ocr", {**whole, "vision_config": {**tower, "hidden_size": 64}}
    tower = {"width": 16, "layers": 1, "heads": 2, "image_size": 56, "patch_size": 14, "mlp_ratio": 2.0}
    tower |= {f"use_{name}": name != "cls_token" for name in _OF_A_TOWER}
    tower |= {"hidden_act": "quick_gelu", "output_dim": None, "ls_init_value": 0.1}
    whole = _around("step_robotics", "StepVLForConditionalGeneration", text_config=known["small/qwen3"])
    yield "small/step_robotics", {**whole, "projector_bias": False, "vision_config": tower}


def told_by_their_files() -> Iterator[tuple[str, dict[str, Any]]]:
    """... whose class nobody has: a file that tells all."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "v_head_dim": 16}
    experts = {"moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2}
    yield (
        "small/mimo_v2",
        {
            **{"model_type": "mimo_v2", "architectures": ["MiMoV2ForCausalLM"]},
            "auto_map": {"AutoConfig": "configuration_mimo_v2.MiMoV2Config"},
            **{"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96},
            **{**heads, **{f"swa_{name}": size for name, size in heads.items()}, **experts},
            **{"hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1], "sliding_window_size": 5},
            **{"layernorm_epsilon": 1e-5, "max_position_embeddings": 128, "partial_rotary_factor": 0.334},
            **{"rope_theta": 5e6, "swa_rope_theta": 1e4, "attention_bias": False, "hidden_act": "silu"},
            **{"attention_value_scale": 0.707, "add_swa_attention_sink_bias": True, "n_group": 1},
            **{"add_full_attention_sink_bias": False, "topk_group": 1, "norm_topk_prob": True},
            **{"scoring_func": "sigmoid", "topk_method": "noaux_tc", "tie_word_embeddings": False},
            **{"vision_config": {"depth": 2, "use_sink": True}, "audio_config": {"projection_layers": 2}},
        },
    )


def as_tiny_ones_are() -> Iterator[tuple[str, dict[str, Any]]]:
    """... and what transformers writes of them, which is not what SGLang reads."""
    sizes = {
        "ernie4_5_moe_vl": {"num_hidden_layers": 3},
        "gemma4_unified": {},
        "glm_ocr": {},
        "glmasr": {},
        "llava": {},
    }
    for name, told in sizes.items():
        yield f"small/{name}", _told(families.config_json(families.make_reference(name, **told)))


_WHOLE = "dots_vlm", "step3_vl"


def as_published() -> Iterator[tuple[str, dict[str, Any]]]:
    """... and of a text that its checkpoint describes twice."""
    for named in ("deepseek-ai/DeepSeek-OCR", "a/unlimited-ocr-of-deepseek-ocrs-sizes"):
        ocr = next(one.config for one in published() if one.name == named)
        text = {**ocr["language_config"], "num_hidden_layers": 2}
        yield f"small/{ocr['model_type']}", {**_told(ocr), "language_config": text}
    points = next(one.config for one in published() if one.config["model_type"] == "pointsv1.5_chat")
    text = {**points["llm_config"], "num_hidden_layers": 2}
    yield "small/pointsv1.5_chat", {**_told(points), "llm_config": text}
    minicpm = next(one.config for one in published() if one.name == "a/minicpm-v-4.5-from-memory")
    yield "small/minicpmv", {**_told(minicpm), "num_hidden_layers": 2}
    moss = next(one.config for one in published() if one.config["model_type"] == "moss_vl")
    text = {**moss["text_config"], "num_hidden_layers": 4}
    yield "small/moss_vl", {**_told(moss), "text_config": text}
    omni = next(one.config for one in published() if one.config["model_type"] == "minicpmo")
    yield "small/minicpmo", {**_told(omni), "num_hidden_layers": 2}
    for kind, own in (("llama", "a/llava-v1.5-7b"), ("qwen2", "a/llava-onevision-qwen2-7b")):
        told = _told(next(one.config for one in published() if one.name == f"{own}-from-memory"))
        yield f"small/llava of a {kind}", {**told, "num_hidden_layers": 2, "pad_token_id": 0}
    located = next(one.config for one in published() if one.config["model_type"] == "locateanything")
    text = {**located["text_config"], "num_hidden_layers": 2}
    yield "small/locateanything", {**_told(located), "text_config": text}
    for name in ("sarashina2_vision", "nvila", "nvila_lite", "midashenglm"):
        whole = next(one.config for one in published() if one.config["model_type"] == name)
        text = {**whole["text_config"], "num_hidden_layers": 2}
        yield f"small/{name}", {**_told(whole), "text_config": text}
    heard = next(one.config for one in published() if one.name == "a/mimo-v2.5-asr-from-memory")
    yield "small/mimo_v2_asr", {**_told(heard), "num_hidden_layers": 2}
    janus = next(one.config for one in published() if one.config["model_type"] == "multi_modality")
    text = {**janus["language_config"], "num_hidden_layers": 2}
    yield "small/multi_modality", {**_told(janus), "language_config": text}
    phi = next(one.config for one in published() if one.config["model_type"] == "phi4mm")
    yield "small/phi4mm", {**_told(phi), "num_hidden_layers": 2}
    dots, step = (
        next(one.config for one in published() if one.config["model_type"] == name) for name in _WHOLE
    )
    yield "small/dots_vlm", {**_told(dots), "num_hidden_layers": 2}
    text = {**step["text_config"], "num_hidden_layers": 3, "moe_layers_enum": "1,2"}
    yield "small/step3_vl", {**_told(step), "text_config": text}


def _around(name: str, served_by: str, **sections: Any) -> dict[str, Any]:
    return {"model_type": name, "architectures": [served_by], "vision_config": {}, **sections}


def _served(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """One of them has its name from an architecture, and transformers has none of that."""
    known = {"bailing_hybrid_v3": "bailing_hybrid", "kimi_k3_text": "kimi_linear", "xverse_moe": "xverse"}
    known["mixtral_quant"] = "mixtral"
    if name == "embedding_gemma":
        return {**_told(config), "model_type": "gemma3_text", "architectures": ["Gemma3TextModel"]}
    if name not in known:
        return _told(config)
    as_published = families.TINY[name].as_published
    assert as_published is not None
    return _told({**as_published(config), "model_type": known[name]})


_HEARING = ("qwen2_audio", "glmasr", "voxtral")
_KEPT = ("kimi_linear",)  # has a class, of another architecture


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """With the class that serves it, where it names none."""
    kept = _kept(config)
    names = {**auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    names |= {one.model_type: one.architecture for one in CLASSLESS.values() if one.model_type not in _KEPT}
    names |= {one: SERVED[one][0] for one in ("iquestcoder", *_HEARING)}
    kept["architectures"] = kept.get("architectures") or [names.get(kept["model_type"], "LlamaForCausalLM")]
    return kept


def _kept(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _kept(one) if isinstance(one, dict) else one
        for name, one in config.items()
        if name not in _LEFT_OUT
    }


def main() -> None:
    kept = dict(checkpoints())
    kept |= {name: config for name, config in found() if name not in kept}
    for more in (
        around(kept),
        of_other_classes(kept),
        around_qwens(kept),
        told_by_their_files(),
        as_tiny_ones_are(),
        as_published(),
    ):
        kept |= {name: config for name, config in more if name not in kept}
    for name, config in kept.items():
        try:
            model_config(config)
        except ConfigError as error:
            print(f"{name}: {error.message}")
    CHECKPOINTS.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


if __name__ == "__main__":
    main()
