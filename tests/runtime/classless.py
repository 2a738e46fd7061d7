"""Families that transformers has no class for: one of the same mathematics, under a checkpoint's names.

Ling 2.0 is a GLM-4.5, and so is LLaDA2, one token after another. Ling 1 is a Qwen2-MoE whose shared expert
counts half, as its gate says nothing: a checkpoint has that half in its weights. So is DeepSeek-MoE. Ling 2.5
is a DeepSeek-V3, most of whose layers have lightning attention. InternLM 2 and EXAONE 3 are Llamas,
Solar and Llama-Nemotron others with more or fewer parts, MiniCPM a Granite, SDAR a Qwen3, Intern-S1-Pro
another, and MOSS-VL without images a third. Mistral Large 3, as SGLang reads its params.json, is a Mistral 4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.runtime import (
    baichuan,
    chatglm,
    deepseek_moe,
    dots3,
    exaone,
    gigachat,
    grok,
    interns1_pro,
    iquest_loopcoder,
    iquest_q1,
    jet_nemotron,
    k2_horizon,
    kimi_k3,
    minicpm,
    minicpm_sala,
    mobius,
    moss_vl,
    nanbeige,
    nemotron_nas,
    nemotron_puzzle,
    orion,
    phi3_small,
    sarvam_mla,
    small_llamas,
    solar,
    spark2_5,
    step3,
    xverse_moe,
    zaya,
)
from tests.runtime.large_3 import alter_large_3, large_3, same_tensors
from tests.runtime.lightning import Lightning
from tests.runtime.sdar import sdar, sdar_moe
from tests.runtime.told import Randomize, Tensors, Told, each_expert, shared


@dataclass(frozen=True, slots=True)
class Classless:
    """`alter` makes what none of the class's `sizes` says; `tensors` are a checkpoint's."""

    architecture: str
    model_type: str
    config_class: str
    sizes: Callable[[Told], Told]
    alter: Callable[[Any, Told, Randomize], None]
    tensors: Callable[[Tensors, Told], Iterator[tuple[str, torch.Tensor]]]


def _rope(told: Told, width: int) -> Told:
    share = told.get("partial_rotary_factor", told.get("rotary_dim", width) / width)
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {"rope_theta": told["rope_theta"], "partial_rotary_factor": share, **rope}


def _head_dim(told: Told) -> int:
    width: int = told.get("head_dim") or told["hidden_size"] // told["num_attention_heads"]
    return width


def _bailing(told: Told) -> Told:
    same = ("num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
    width = _head_dim(told)
    return {
        **shared(told),
        **{one: told[one] for one in same},
        "head_dim": width,
        "rope_parameters": _rope(told, width),
    }


def _second(told: Told) -> Told:
    same = ("n_group", "topk_group", "first_k_dense_replace", "routed_scaling_factor", "use_qk_norm")
    return {
        **_bailing(told),
        **{one: told[one] for one in same},
        "attention_bias": told.get("use_qkv_bias", False),
        "n_routed_experts": told["num_experts"],
        "n_shared_experts": told["num_shared_experts"],
    }


def _first(told: Told) -> Told:
    return {
        **_bailing(told),
        "num_experts": told["num_experts"],
        "shared_expert_intermediate_size": _shared_width(told) or 1,
        "mlp_only_layers": [*range(told.get("first_k_dense_replace", 0))],
        "qkv_bias": told.get("use_qkv_bias", False),
    }


def _hybrid(told: Told) -> Told:
    same = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size")
    same += ("num_experts_per_tok", "n_group", "topk_group", "first_k_dense_replace", "routed_scaling_factor")
    return {
        **shared(told),
        **{one: told[one] for one in same},
        "num_key_value_heads": told["num_attention_heads"],
        "q_lora_rank": told.get("q_lora_rank"),
        "n_routed_experts": told["num_experts"],
        "n_shared_experts": told["num_shared_experts"] or 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": told["rope_theta"]},
    }


def _shared_width(told: Told) -> int:
    each = told.get("moe_shared_expert_intermediate_size", told["moe_intermediate_size"])
    return int(each * told.get("num_shared_experts", 0))


def _alter_second(model: Any, told: Told, randomize: Randomize) -> None:
    for layer in model.model.layers:
        shared = getattr(layer.mlp, "shared_experts", None)
        if shared is not None and shared.intermediate_size != _shared_width(told):
            layer.mlp.shared_experts = type(shared)(model.config, intermediate_size=_shared_width(told))
            randomize(layer.mlp.shared_experts)


def _alter_first(model: Any, told: Told, randomize: Randomize) -> None:
    for layer in model.model.layers:
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate.weight.data.zero_()
            layer.mlp.shared_expert.down_proj.weight.data.mul_(bool(_shared_width(told)))


def _alter_hybrid(model: Any, told: Told, randomize: Randomize) -> None:
    for number, layer in enumerate(model.model.layers):
        if (number + 1) % told["layer_group_size"]:
            layer.self_attn = Lightning(told, number)
            randomize(layer.self_attn)
            layer.self_attn.requires_grad_(False)
        if not told["num_shared_experts"] and hasattr(layer.mlp, "shared_experts"):
            layer.mlp.shared_experts.down_proj.weight.data.zero_()


_OF_BAILING = {
    "model.embed_tokens": "model.word_embeddings",
    ".self_attn.o_proj": ".attention.dense",
    ".self_attn.q_norm": ".attention.query_layernorm",
    ".self_attn.k_norm": ".attention.key_layernorm",
    ".gate.e_score_correction_bias": ".gate.expert_bias",
    ".mlp.shared_expert.": ".mlp.shared_experts.",
}


def _bailing_tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if "shared_expert_gate" in name or ".k_proj" in name or ".v_proj" in name:
            continue
        if ".q_proj" in name:
            parts = [tensors[name.replace(".q_proj", f".{one}_proj")] for one in "qkv"]
            yield f"{stem.replace('self_attn.q_proj', 'attention.query_key_value')}.{kind}", torch.cat(parts)
        elif kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        elif ".shared_expert" not in name or _shared_width(told):
            for own, other in _OF_BAILING.items():
                name = name.replace(own, other)
            yield name, tensor


def _hybrid_tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    renamed = {
        **{one: _OF_BAILING[one] for one in ("model.embed_tokens", ".gate.e_score_correction_bias")},
        **{".self_attn.o_proj": ".attention.dense", ".self_attn.": ".attention."},
    }
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        elif ".shared_experts" not in name or told["num_shared_experts"]:
            for own, other in renamed.items():
                name = name.replace(own, other)
            yield name, tensor


def _first_tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    """Here nothing halves the shared experts, and something multiplies the others."""
    for name, tensor in _bailing_tensors(tensors, told):
        if name.endswith("shared_experts.down_proj.weight"):
            tensor = tensor * 0.5
        elif ".experts." in name and name.endswith("down_proj.weight"):
            tensor = tensor / told.get("routed_scaling_factor", 1.0)
        yield name, tensor


_OF_INTERNLM = {
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
    ".self_attn.o_proj": ".attention.wo",
    ".input_layernorm": ".attention_norm",
    ".post_attention_layernorm": ".ffn_norm",
    ".mlp.gate_proj": ".feed_forward.w1",
    ".mlp.up_proj": ".feed_forward.w3",
    ".mlp.down_proj": ".feed_forward.w2",
}


def _internlm(told: Told) -> Told:
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {**shared(told), "rope_parameters": {"rope_theta": told["rope_theta"], **rope}}


def _internlm_tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    """Each KV head stands behind the queries that ask it."""
    groups, width = told["num_key_value_heads"], told["hidden_size"] // told["num_attention_heads"]
    for name, tensor in tensors.items():
        if ".q_proj" in name:
            parts = [tensors[name.replace(".q_proj", f".{one}_proj")] for one in "qkv"]
            heads = torch.cat([part.unflatten(0, (groups, -1, width)) for part in parts], dim=1)
            yield name.replace("self_attn.q_proj", "attention.wqkv"), heads.flatten(0, 2)
        elif ".k_proj" not in name and ".v_proj" not in name:
            for own, other in _OF_INTERNLM.items():
                name = name.replace(own, other)
            yield name, tensor


def _as_it_is(model: Any, told: Told, randomize: Randomize) -> None:
    return None


CLASSLESS = {
    "internlm2": Classless(
        "InternLM2ForCausalLM", "internlm2", "LlamaConfig", _internlm, _as_it_is, _internlm_tensors
    ),
    "solar": Classless(
        *("SolarForCausalLM", "solar", "LlamaConfig", solar.config, solar.alter, same_tensors)
    ),
    "exaone": Classless(
        *("ExaoneForCausalLM", "exaone", "LlamaConfig", exaone.config, _as_it_is, exaone.tensors)
    ),
    "minicpm": Classless(
        *("MiniCPMForCausalLM", "minicpm", "GraniteConfig", minicpm.config, _as_it_is, same_tensors)
    ),
    "orion": Classless(
        *("OrionForCausalLM", "orion", "StableLmConfig", orion.config, _as_it_is, same_tensors)
    ),
    "xverse_moe": Classless(
        *("XverseMoeForCausalLM", "xverse", "Qwen2MoeConfig"),
        *(xverse_moe.sizes, xverse_moe.alter, xverse_moe.tensors),
    ),
    "xverse": Classless(
        *("XverseForCausalLM", "xverse", "LlamaConfig", small_llamas.xverse, _as_it_is, same_tensors)
    ),
    "baichuan": Classless(
        *("BaichuanForCausalLM", "baichuan", "LlamaConfig", baichuan.sizes, baichuan.alter, baichuan.tensors)
    ),
    "TeleFLM": Classless(
        *("TeleFLMForCausalLM", "TeleFLM", "GraniteConfig", small_llamas.teleflm, _as_it_is, same_tensors)
    ),
    "qwen": Classless(
        *("QWenLMHeadModel", "qwen", "Qwen2Config"),
        *(small_llamas.qwen, _as_it_is, small_llamas.qwen_tensors),
    ),
    "spark2_5": Classless(
        *("Spark2_5ForCausalLM", "spark2_5", "LlamaConfig"),
        *(spark2_5.config, spark2_5.alter, spark2_5.tensors),
    ),
    "mistral_large_3": Classless(
        *("MistralLarge3ForCausalLM", "deepseek_v3", "Mistral4Config"),
        *(large_3, alter_large_3, same_tensors),
    ),
    "bailing_moe": Classless(
        "BailingMoeForCausalLM", "bailing_moe", "Qwen2MoeConfig", _first, _alter_first, _first_tensors
    ),
    "bailing_moe_v2": Classless(
        "BailingMoeV2ForCausalLM", "bailing_moe", "Glm4MoeConfig", _second, _alter_second, _bailing_tensors
    ),
    "deepseek": Classless(
        *("DeepseekForCausalLM", "deepseek", "Qwen2MoeConfig"),
        *(deepseek_moe.sizes, deepseek_moe.alter, deepseek_moe.tensors),
    ),
    "sarvam_moe": Classless(
        "SarvamMoEForCausalLM", "sarvam_moe", "Glm4MoeConfig", _second, _alter_second, _bailing_tensors
    ),
    "llada2_moe": Classless(
        "LLaDA2MoeModelLM", "llada2_moe", "Glm4MoeConfig", _second, _alter_second, _bailing_tensors
    ),
    "kimi_k3_text": Classless(
        *(
            "KimiK3LinearForCausalLM",
            "kimi_linear",
            "KimiLinearConfig",
            kimi_k3.config,
            kimi_k3.alter,
            kimi_k3.tensors,
        )
    ),
    "grok": Classless(
        *("Grok1ForCausalLM", "git", "LlamaConfig", grok.config, grok.alter, grok.tensors),
    ),
    "chatglm": Classless(
        *("ChatGLMModel", "chatglm", "GlmConfig", chatglm.config, _as_it_is, chatglm.tensors)
    ),
    "nanbeige": Classless(
        *("NanbeigeForCausalLM", "nanbeige", "LlamaConfig"),
        *(nanbeige.config, nanbeige.alter, nanbeige.tensors),
    ),
    "iquestloopcoder": Classless(
        *("IQuestLoopCoderForCausalLM", "iquestloopcoder", "LlamaConfig"),
        *(iquest_loopcoder.config, iquest_loopcoder.alter, iquest_loopcoder.tensors),
    ),
    "jet_nemotron": Classless(
        *("JetNemotronForCausalLM", "jet_nemotron", "Qwen2Config"),
        *(jet_nemotron.config, jet_nemotron.alter, same_tensors),
    ),
    "minicpm_sala": Classless(
        *("MiniCPMSALAForCausalLM", "minicpm_sala", "GraniteConfig"),
        *(minicpm_sala.config, minicpm_sala.alter, same_tensors),
    ),
    "phi3small": Classless(
        *("Phi3SmallForCausalLM", "phi3small", "Starcoder2Config"),
        *(phi3_small.config, phi3_small.alter, phi3_small.tensors),
    ),
    "iquest_q1": Classless(
        *("IQuestQ1ForCausalLM", "iquest_q1", "LlamaConfig"),
        *(iquest_q1.config, iquest_q1.alter, iquest_q1.tensors),
    ),
    "step3_text": Classless(
        *("Step3VLForConditionalGeneration", "step3_text", "LlamaConfig"),
        *(step3.config, step3.alter, same_tensors),
    ),
    "moss_vl_text": Classless(
        *("MossVLForConditionalGeneration", "moss_vl_text", "Qwen3Config"),
        *(moss_vl.config, moss_vl.alter, moss_vl.tensors),
    ),
    "gigachat3_5": Classless(
        *("GigaChat35ForCausalLM", "gigachat3_5", "LlamaConfig"),
        *(gigachat.config, gigachat.alter, gigachat.tensors),
    ),
    "k2_horizon": Classless(
        *("K2HorizonForCausalLM", "k2_horizon", "LlamaConfig"),
        *(k2_horizon.config, k2_horizon.alter, k2_horizon.tensors),
    ),
    "nemotron-nas": Classless(
        *("DeciLMForCausalLM", "nemotron-nas", "LlamaConfig"),
        *(nemotron_nas.config, nemotron_nas.alter, same_tensors),
    ),
    "nemotron_h_puzzle": Classless(
        *("NemotronHPuzzleForCausalLM", "nemotron_h_puzzle", "NemotronHConfig"),
        *(nemotron_puzzle.config, nemotron_puzzle.alter, nemotron_puzzle.tensors),
    ),
    "zaya": Classless(
        *("ZayaForCausalLM", "zaya", "ZayaConfig"),
        *(zaya.config, zaya.alter, zaya.tensors),
    ),
    "dots3_note_text": Classless(
        *("Dots3NoteForCausalLM", "dots3_note", "LlamaConfig", dots3.config, dots3.alter, dots3.tensors)
    ),
    "sdar": Classless("SDARForCausalLM", "sdar", "Qwen3Config", sdar, _as_it_is, same_tensors),
    "sdar_moe": Classless(
        "SDARMoeForCausalLM", "sdar_moe", "Qwen3MoeConfig", sdar_moe, _as_it_is, same_tensors
    ),
    "sarvam_mla": Classless(
        *("SarvamMLAForCausalLM", "sarvam_mla", "DeepseekV3Config"),
        *(sarvam_mla.sizes, sarvam_mla.alter, sarvam_mla.tensors),
    ),
    "interns1_pro_text": Classless(
        *("InternS1ProForConditionalGeneration", "interns1_pro_text", "Qwen3MoeConfig"),
        *(interns1_pro.sizes, interns1_pro.alter, interns1_pro.tensors),
    ),
    "interns2_mobius_text": Classless(
        *("InternS2MobiusForConditionalGeneration", "interns2_mobius_text", "Qwen3_5MoeTextConfig"),
        *(mobius.sizes, mobius.alter, mobius.tensors),
    ),
    "bailing_hybrid": Classless(
        *("BailingMoeV2_5ForCausalLM", "bailing_hybrid", "DeepseekV3Config"),
        *(_hybrid, _alter_hybrid, _hybrid_tensors),
    ),
}


def make(name: str, told: Told, randomize: Randomize) -> Any:
    """The class's own model, with the config of the checkpoint."""
    import transformers

    kind = CLASSLESS[name]
    config = getattr(transformers, kind.config_class)(**json.loads(json.dumps(kind.sizes(told))))
    config._attn_implementation = "eager"
    model = of_text(config).float().eval()
    randomize(model)
    kind.alter(model, told, randomize)
    model.classless, model.told, model.raw_head = name, told, model.lm_head.weight.data
    if told.get("norm_head") and not told.get("tie_word_embeddings"):
        model.lm_head.weight.data = F.normalize(model.raw_head, dim=0)
    model.saved_as = {"model_type": kind.model_type, "architectures": [kind.architecture], **told}
    return model


def of_text(config: Any) -> Any:
    """transformers lists Mistral 4 among models of images alone, and Mllama's text nowhere. A Gemma 3 that
    sees both ways generates nothing."""
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        Gemma3TextModel,
        MllamaForCausalLM,
    )

    if config.model_type == "gemma3_text" and config.use_bidirectional_attention:
        config.architectures = ["Gemma3TextModel"]
        return Gemma3TextModel._from_config(config)
    if config.model_type == "mllama_text_model":
        return MllamaForCausalLM._from_config(config)
    is_listed = type(config) in AutoModelForCausalLM._model_mapping
    return (AutoModelForCausalLM if is_listed else AutoModelForImageTextToText).from_config(config)


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """As a checkpoint names them."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    kept = {name: tensor.data for name, tensor in own.items() if "inv_freq" not in name}
    if "lm_head.weight" in kept:
        kept["lm_head.weight"] = model.raw_head
    return dict(CLASSLESS[model.classless].tensors(kept, model.told))


def save(model: Any, folder: Path) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors(model).items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(model.saved_as))
    return folder
