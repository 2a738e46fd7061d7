"""The encoder of a multimodal model: as large as transformers has it, and split as SGLang splits it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.encoder import EncoderWeights
from runtime.server.backends import Number
from runtime.server.decoders.known import model_config
from runtime.server.decoders.text_names import alone
from runtime.server.decoders.wrappers import WRAPPERS, served_part, wrapper_of
from runtime.server.encoders.weight import Encoder, EncoderWeight
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.families import WRAPPED as EVERY
from tests.runtime.families import config_json, make_reference

WRAPPED = tuple(
    name for name in EVERY if name != "inkling_mm_model"
)  # which has none but where it is asked to
# Sizes that nothing has to be padded to, and the sides of what would not show in so few of them.
_SIZES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"embed_dim": 32, "depth": 3, "mlp_ratio": 2, "patch_size": 4},
    "qwen2_5_vl": {"hidden_size": 32, "depth": 2, "intermediate_size": 40, "temporal_patch_size": 1},
    "qwen3_vl": {"deepstack_visual_indexes": [0, 1], "depth": 2, "num_position_embeddings": 256},
    "qwen3_vl_moe": {"deepstack_visual_indexes": [], "depth": 3, "spatial_merge_size": 3},
    "qwen3_omni_moe": {"deepstack_visual_indexes": [0, 1], "depth": 2, "num_position_embeddings": 256},
    "qwen3_asr": {"encoder_layers": 2, "num_mel_bins": 37, "downsample_hidden_size": 6, "output_dim": 24},
    "qwen2_audio": {"encoder_layers": 2, "num_mel_bins": 37, "d_model": 24, "encoder_ffn_dim": 40},
    "glmasr": {"num_hidden_layers": 2, "num_mel_bins": 37, "head_dim": 12, "num_key_value_heads": 1},
    "voxtral": {"num_hidden_layers": 2, "num_mel_bins": 37, "hidden_size": 24, "intermediate_size": 48},
    "qwen3_5": {"depth": 2, "patch_size": 8},
    "qwen3_5_moe": {"num_heads": 4, "out_hidden_size": 64, "in_channels": 1},
    "qwen4_exp": {"depth": 2, "num_heads": 4, "num_position_embeddings": 256},
    "glm4v": {"attention_bias": True, "image_size": 56, "spatial_merge_size": 3},
    "glm46v": {"hidden_size": 24, "depth": 2},
    "glm4v_moe": {"depth": 2, "intermediate_size": 24, "in_channels": 4},
    "glm_ocr": {"depth": 2, "intermediate_size": 24, "spatial_merge_size": 3, "num_heads": 4},
    "glm5_next": {"depth": 2, "intermediate_size": 24, "spatial_merge_size": 3, "out_hidden_size": 32},
    "lighton_ocr": {"num_hidden_layers": 2, "patch_size": 7, "num_channels": 4},
    "llava": {"num_hidden_layers": 2, "patch_size": 7, "num_channels": 4},
    "muse_glimmer": {"num_hidden_layers": 2, "hidden_size": 32, "patch_temporal": 1, "pos_emb_width": 5},
    "muse_spark": {"num_hidden_layers": 2, "patch_temporal": 1, "pos_emb_width": 5, "intermediate_size": 24},
    "mistral3": {"num_hidden_layers": 2, "patch_size": 7, "num_channels": 4},
    "llama4": {"num_hidden_layers": 2, "hidden_size": 32, "multi_modal_projector_bias": False},
    "mllama": {"num_hidden_layers": 2, "hidden_size": 32, "image_size": 42, "num_channels": 4},
    "gemma3": {"num_hidden_layers": 2, "hidden_size": 32, "vision_use_head": False},
    "gemma4": {"num_hidden_layers": 2, "head_dim": 12, "patch_size": 4, "standardize": True},
    "diffusion_gemma": {"num_hidden_layers": 2, "head_dim": 12, "patch_size": 4, "standardize": True},
    "gemma4_unified": {"patch_size": 2, "pooling_kernel_size": 5, "mm_posemb_size": 9, "mm_embed_dim": 24},
    "cohere2_vision": {"num_hidden_layers": 2, "hidden_size": 32, "vision_use_head": False},
    "ernie4_5_moe_vl": {"depth": 2, "patch_size": 7, "spatial_merge_size": 3, "temporal_merge_size": 3},
    "paddleocr_vl": {"num_hidden_layers": 2, "hidden_size": 32, "patch_size": 7, "num_channels": 4},
    "lfm2_vl": {"num_hidden_layers": 2, "num_patches": 49, "vision_use_head": False, "num_channels": 4},
    "step3p7": {"num_hidden_layers": 2, "hidden_size": 32, "mlp_ratio": 2.25},
    "minimax_m3_vl": {"num_hidden_layers": 2, "hidden_size": 32, "spatial_merge_size": 3},
    "kimi_k25": {"num_hidden_layers": 2, "pos_emb_height": 5, "merge_kernel_size": [3, 3]},
    "kimi_vl": {"num_hidden_layers": 3, "pos_emb_width": 3, "patch_size": 7},
    "interns1": {"num_hidden_layers": 2, "use_qk_norm": True, "attention_bias": True, "patch_size": [7, 7]},
    "intern_s2_preview": {"num_heads": 4, "in_channels": 1},
    "minicpmv4_6": {"num_hidden_layers": 2, "patch_size": 7, "num_channels": 4},
    "minicpmv4_7": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 24},
    "nemotron_h_omni": {"patch_size": 64, "num_registers": 2},
    "internvl_chat": {
        "num_hidden_layers": 2,
        "use_qk_norm": True,
        "attention_bias": False,
        "norm_type": "rms_norm",
        "image_size": [84, 84],
        "patch_size": [7, 7],
    },
}


# Which SGLang makes, and nobody asks: a norm behind MiniMax-M3's last layer, parts of GLM-4.1V's in GLM-OCR.
_IDLE = {
    "minimax_m3_vl": ("post_layernorm",),
    "glm_ocr": ("embeddings", "post_conv_layernorm"),
    "paddleocr_vl": ("packing_position_embedding",),
}


def _count(weights: Iterable[EncoderWeight]) -> int:
    return sum(math.prod(weight.shape) * weight.layers for weight in weights)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("name", WRAPPED)
def test_it_has_as_many_parameters_as_transformers_counts(name: str, changed: bool) -> None:
    """All of the model's but those of its language model and head."""
    with torch.device("meta"):
        model = make_reference(name, vision=_SIZES[name] if changed else {})
    hf = _as_published(name, served_part(WRAPPERS[name], config_json(model)))
    inner = getattr(model, "model", model)
    whole = {id(p): p.numel() for p in model.parameters()}
    text = inner.decoder if name == "diffusion_gemma" else inner.language_model
    for part in (text, model.get_output_embeddings()):
        for parameter in () if part is None else part.parameters():
            whole.pop(id(parameter), None)
    used = [one for one in WRAPPERS[name].weights(hf, 64) if not one.name.startswith(_IDLE.get(name, "-"))]
    assert _count(used) == sum(whole.values()) + _biases(name, model.config)


def _biases(name: str, config: Any) -> int:
    """Of attention, which SGLang has and no file: Voxtral's of keys, Mllama's all."""
    if name == "mllama":
        tower = config.vision_config
        return int(4 * tower.hidden_size * (tower.num_hidden_layers + tower.num_global_layers))
    ear = config.audio_config if name == "voxtral" else None
    return 0 if ear is None else int(ear.num_hidden_layers * ear.hidden_size)


_WITHOUT_DEEP_LAYERS = ("qwen3_5", "qwen3_5_moe", "intern_s2_preview")


def _as_published(name: str, hf: Any) -> Any:
    """transformers writes no member that its class has not, and publishers did."""
    if name not in _WITHOUT_DEEP_LAYERS:
        return hf
    return {**hf, "vision_config": {**hf["vision_config"], "deepstack_visual_indexes": []}}


@pytest.mark.parametrize("name", [*_WITHOUT_DEEP_LAYERS, "qwen3_vl"])
def test_sglangs_class_has_three_mergers_of_deep_layers_where_a_file_does_not_say(name: str) -> None:
    """A fine-tuned Qwen3.5, as transformers saves it. srt/configs/qwen3_vl.py"""
    hf = served_part(WRAPPERS[name], config_json(make_reference(name)))
    told = {key: value for key, value in hf["vision_config"].items() if key != "deepstack_visual_indexes"}
    made = [
        {one.name: one.layers for one in WRAPPERS[name].weights({**hf, "vision_config": vision}, 64)}
        for vision in (told, {**told, "deepstack_visual_indexes": []})
    ]
    assert made[0]["deepstack_merger_list.norm.weight"] == 3
    assert not any(one.startswith("deepstack") for one in made[1])


def _encoder(name: str) -> Encoder:
    hf = config_json(make_reference(name))
    assert wrapper_of(hf) is not None
    encoder = model_config(hf).encoder
    assert encoder is not None
    return encoder


def _of_rank(encoder: Encoder, parallel: ParallelConfig, rank: int = 0) -> int:
    comm = VirtualCommunicator(parallel, rank)
    weights = EncoderWeights(encoder.weights, comm, torch.bfloat16, torch.device("meta"))
    return sum(p.numel() for p in weights.parameters())


_WHOLE = ("gemma4_unified", "qwen2_audio", "glmasr")  # on every rank


@pytest.mark.parametrize("name", WRAPPED)
def test_ranks_share_what_is_split_and_each_has_the_rest(name: str) -> None:
    encoder = _encoder(name)
    shared = [replace(weight, on_first_stage_alone=False) for weight in encoder.weights]
    split, kept = (
        _count(w for w in shared if (w.split is not None) is is_split) for is_split in (True, False)
    )
    assert (split > 0 or name in _WHOLE) and kept > 0
    assert _of_rank(encoder, ParallelConfig(tp=2)) == split // 2 + kept
    assert _of_rank(encoder.whole(), ParallelConfig(tp=2)) == (
        split + kept if encoder.may_be_whole else split // 2 + kept
    )


def test_attention_dp_splits_qwen3_by_its_attention_ranks_alone() -> None:
    encoder, both = _encoder("qwen3_vl"), ParallelConfig(tp=2, dp=2, enable_dp_attention=True)
    assert _of_rank(encoder, both) == _of_rank(encoder, ParallelConfig())


def test_the_rows_of_positions_lie_on_the_first_stage() -> None:
    encoder, stages = _encoder("qwen3_vl"), ParallelConfig(pp=2)
    assert _of_rank(encoder, stages, 0) - _of_rank(encoder, stages, 1) == 64 * 16


def test_heads_that_do_not_divide_are_padded_by_some_alone() -> None:
    qkv = EncoderWeight("attn.qkv_proj.weight", (3 * 12 * 8, 96), 0, units=12)
    padded = replace(qkv, pads=True)
    assert padded.of_rank(8) == (3 * 2 * 8, 96)
    assert padded.on_each().of_rank(8) == (3 * 16 * 8, 96) and qkv.on_each().of_rank(8) == qkv.shape
    with pytest.raises(ConfigError, match=r"the encoder's attn\.qkv_proj\.weight: 12 cannot be split over 8"):
        qkv.of_rank(8)


def test_interns_norms_of_all_heads_have_the_dummies_of_all_ranks() -> None:
    told = {"num_attention_heads": 5, "hidden_size": 40, "use_qk_norm": True}
    hf = config_json(make_reference("internvl_chat", vision=told))
    norm = next(
        one for one in WRAPPERS["internvl_chat"].weights(hf, 64) if one.name.endswith("attn.q_norm.weight")
    )
    assert [norm.of_rank(ranks) for ranks in (1, 2, 5, 8)] == [(40,), (48,), (40,), (64,)]
    assert norm.on_each() == norm


@pytest.mark.parametrize("told", [None, "batch_norm", 7])
def test_interns_norms_are_told_and_known(told: Any) -> None:
    hf = config_json(make_reference("internvl_chat"))
    with pytest.raises(ConfigError, match="vision_config: norm_type is"):
        list(
            WRAPPERS["internvl_chat"].weights(
                {**hf, "vision_config": {**hf["vision_config"], "norm_type": told}}, 64
            )
        )


@pytest.mark.parametrize("told", [["LlamaForCausalLM"], [], None, [7]])
def test_interns_language_model_is_known_by_its_architecture(told: Any) -> None:
    hf = config_json(make_reference("internvl_chat"))
    with pytest.raises(ConfigError, match="llm_config: architectures is"):
        model_config({**hf, "llm_config": {**hf["llm_config"], "architectures": told}})


def test_an_internlm_inside_is_one_by_itself() -> None:
    hf, inside = config_json(make_reference("internvl_chat")), config_json(make_reference("internlm2"))
    whole = model_config({**hf, "llm_config": inside})
    assert replace(whole, encoder=None) == model_config(inside) and whole.encoder is not None
    names = ("output.weight", "model.tok_embeddings.weight")
    assert [alone(f"language_model.{name}") for name in names] == [*names]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"vt_hidden_size": 128}, "vt_hidden_size is 128: SGLang reads hidden_size, which is 16 here"),
        ({"hidden_size": None}, "vt_hidden_size is 16: SGLang reads hidden_size, which is 1152 here"),
        ({"vt_num_hidden_layers": 27}, "SGLang reads num_hidden_layers, which is 1 here"),
        ({"pos_emb_height": 5}, "pos_emb_height is 5: SGLang reads init_pos_emb_height, which is 4 here"),
        ({"text_hidden_size": None}, "text_hidden_size is 7168: SGLang makes rows so wide"),
        ({"merge_kernel_size": 2}, "merge_kernel_size is 2: two sizes are needed"),
        ({"pos_emb_type": "learned"}, "pos_emb_type is 'learned': SGLang has divided_fixed"),
    ],
)
def test_kimis_sizes_are_those_that_sglang_reads(told: dict[str, Any], said: str) -> None:
    """And a file that tells others beside them is named."""
    hf = config_json(make_reference("kimi_k25"))
    with pytest.raises(ConfigError, match=said):
        model_config({**hf, "vision_config": {**hf["vision_config"], **told}})


def test_kimi_as_published_has_the_sizes_of_its_class() -> None:
    hf = config_json(make_reference("kimi_k25"))
    alike = {"vt_hidden_size": 1152, "vt_num_hidden_layers": 27, "vt_intermediate_size": 4304}
    told = {**alike, "text_hidden_size": 7168, "merge_kernel_size": [2, 2]}
    merged = 1152 * 4
    found = {one.name: one.shape for one in WRAPPERS["kimi_k25"].weights({**hf, "vision_config": told}, 7168)}
    assert found["mm_projector.linear_2.weight"] == (7168, merged)
    assert found["patch_embed.pos_emb.weight"] == (64, 64, 1152)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("qwen2_vl", "in_chans"),
        ("qwen2_5_vl", "in_channels"),
        ("qwen3_vl", "in_channels"),
        ("qwen3_5", "in_channels"),
    ],
)
def test_colours_are_read_by_the_name_that_sglang_asks_for(name: str, read: str) -> None:
    hf = config_json(make_reference(name))
    told = {"in_chans": 7, "in_channels": 7, read: 4}
    first = next(iter(WRAPPERS[name].weights({**hf, "vision_config": {**hf["vision_config"], **told}}, 64)))
    assert first.name == "patch_embed.proj.weight" and first.shape[1] == 4


_HEARING = ("qwen2_audio", "glmasr", "voxtral")
# The class is in files of the checkpoint, and tells no norm, or is SGLang's.
_OWN_CLASS = (
    *("internvl_chat", "interns1", "kimi_vl", "kimi_k25", "minimax_m3_vl", "glm5_next", "nemotron_h_omni"),
    *("ernie4_5_moe_vl", "gemma4_unified", "paddleocr_vl", "qwen3_asr", "lighton_ocr"),
    *("muse_glimmer", "muse_spark", "llava", "minicpmv4_6", "minicpmv4_7", *_HEARING),
)
_FIRST = ("gemma4", "gemma4_unified", "diffusion_gemma")
_OF_TRANSFORMERS = [name for name in WRAPPED if name not in _OWN_CLASS]


@pytest.mark.parametrize("name", _OF_TRANSFORMERS)
def test_a_size_that_is_not_told_is_that_of_its_config_class(name: str) -> None:
    config = make_reference(name).config
    told = json.loads(json.dumps(type(config.vision_config)().to_dict()))
    hf = json.loads(json.dumps(config.to_dict()))
    unsaid, said = ([*WRAPPERS[name].weights({**hf, "vision_config": v}, 64)] for v in ({}, told))
    assert unsaid == said


def test_gemma_4_has_a_tower_where_one_is_told_and_an_ear_too() -> None:
    hf = config_json(make_reference("gemma4"))
    assert _encoder("gemma4").hears and not Encoder(tuple(_of({**hf, "audio_config": None}))).hears
    with pytest.raises(ConfigError, match="without a vision_config"):
        _of({**hf, "vision_config": None})
    with pytest.raises(ConfigError, match="two whole numbers"):
        _of({**hf, "audio_config": {"subsampling_conv_channels": [8]}})
    default = type(make_reference("gemma4").config.audio_config)().to_dict()
    assert _of({**hf, "audio_config": {}}) == _of({**hf, "audio_config": default})


def _of(hf: dict[str, Any]) -> list[EncoderWeight]:
    return [*WRAPPERS["gemma4"].weights(hf, 64)]


@pytest.mark.parametrize("name", [name for name in _OF_TRANSFORMERS if name not in _FIRST])
def test_a_tower_that_is_not_told_at_all_is_its_models(name: str) -> None:
    hf = make_reference(name).config
    told = type(hf)(text_config=hf.text_config.to_dict()).to_dict()["vision_config"]
    none, said = ([*WRAPPERS[name].weights({**hf.to_dict(), "vision_config": v}, 64)] for v in (None, told))
    assert none == said


def _m3(**vision: Any) -> dict[str, Any]:
    hf = config_json(make_reference("minimax_m3_vl"))
    told = {**hf["vision_config"], **vision}
    return {**hf, "vision_config": {name: value for name, value in told.items() if value != "missing"}}


def test_minimaxs_patches_are_merged_by_two_where_nothing_is_told() -> None:
    alone = _m3(img_token_compression_config={})
    assert [*WRAPPERS["minimax_m3_vl"].weights(alone, 64)] == [*WRAPPERS["minimax_m3_vl"].weights(_m3(), 64)]


def test_minimaxs_projector_is_as_wide_as_its_text_where_nothing_is_told() -> None:
    hf = _m3()
    assert [*WRAPPERS["minimax_m3_vl"].weights({**hf, "projector_hidden_size": None}, 64)] == [
        *WRAPPERS["minimax_m3_vl"].weights({**hf, "projector_hidden_size": 64}, 64)
    ]
    biases = {"multimodal_projector_bias": False, "patch_merge_bias": False}
    named = {one.name for one in WRAPPERS["minimax_m3_vl"].weights({**hf, **biases}, 64)}
    assert not [name for name in named if "linear_" in name and name.endswith("bias")]


@pytest.mark.parametrize(
    ("vision", "said"),
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
        ({"rope_mode": "missing"}, "rope_mode is None: SGLang has '3d' alone"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ({"img_token_compression_config": "missing"}, "has no img_token_compression_config"),
        ({"vision_segment_max_frames": "missing"}, "has no vision_segment_max_frames"),
        ({"rope_parameters": "missing"}, "has no rope_theta"),
        ({"layer_norm_eps": "missing"}, "has no layer_norm_eps"),
        ({"num_channels": "missing"}, "num_channels is None"),
        ({"img_token_compression_config": {"temporal_patch_size": 0}}, "temporal_patch_size is 0"),
        ({"img_token_compression_config": 3}, "img_token_compression_config is 3"),
    ],
)
def test_what_sglang_asks_of_minimaxs_tower_is_named(vision: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(WRAPPERS["minimax_m3_vl"].weights(_m3(**vision), 64))


@pytest.mark.parametrize("told", [{}, None])
@pytest.mark.parametrize("name", ["qwen3_omni_moe", *_HEARING])
def test_an_ear_that_is_not_told_is_that_of_its_config_class(name: str, told: Any) -> None:
    hf = config_json(make_reference(name))
    hf = hf.get("thinker_config", hf)
    said = type(make_reference(name).config.audio_config)().to_dict()
    unsaid, all_said = ([*WRAPPERS[name].weights({**hf, "audio_config": one}, 64)] for one in (told, said))
    assert unsaid == all_said


_QWEN_3 = ("", "pos_embed blocks.attn blocks.mlp merger deepstack_merger_list.merger")
_GLM = ("", "blocks.attn blocks.mlp merger")
# By SGLang's models: what all ranks share, and what those of one attention group do. The rest each has whole.
_SHARED = {
    "qwen2_vl": ("blocks.mlp merger.mlp", "blocks.attn"),
    "qwen2_5_vl": ("blocks.mlp merger.mlp", "blocks.attn"),
    **dict.fromkeys(
        ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "intern_s2_preview", "qwen4_exp"), _QWEN_3
    ),
    "qwen3_omni_moe": (
        "merger deepstack_merger_list.merger audio_tower.layers.mlp",
        "pos_embed blocks.attn blocks.mlp audio_tower.layers.attn",
    ),
    "qwen3_asr": ("audio_tower.layers.mlp", "audio_tower.layers.attn"),
    "qwen2_audio": ("", ""),
    "glmasr": ("", ""),
    "voxtral": ("audio_tower.layers.self_attn audio_tower.layers.mlp", ""),
    **dict.fromkeys(("glm4v", "glm46v", "glm4v_moe", "glm5_next", "glm_ocr"), _GLM),
    **dict.fromkeys(
        ("mistral3", "lighton_ocr", "llava"), ("transformer.layers.feed_forward", "transformer.layers.attn")
    ),
    "llama4": ("patch_embedding model.layers.mlp vision_adapter.mlp", "model.layers.attn"),
    "mllama": (
        "vision_model.patch_embedding vision_model.transformer.layers.mlp"
        " vision_model.global_transformer.layers.mlp",
        "vision_model.transformer.layers.attn vision_model.global_transformer.layers.attn",
    ),
    "gemma3": ("embeddings encoder.layers.mlp", "encoder.layers.attn"),
    "gemma4": (
        "encoder.layers.attn encoder.layers.mlp audio_tower.subsample_conv_projection audio_tower"
        " audio_tower.conformer.ffw_layer_start audio_tower.conformer.ffw_layer_end"
        " audio_tower.conformer.attention audio_tower.conformer.attention.relative_position_embedding"
        " audio_tower.conformer.lconv1d",
        "",
    ),
    "gemma4_unified": ("", ""),
    "diffusion_gemma": ("encoder.layers.attn encoder.layers.mlp", ""),
    "cohere2_vision": ("multi_modal_projector", ""),
    "ernie4_5_moe_vl": ("vision_model.blocks.mlp resampler_model", "vision_model.blocks.attn"),
    "paddleocr_vl": ("encoder.layers.mlp", "encoder.layers.attn"),
    "lfm2_vl": ("encoder.layers.mlp multi_modal_projector", "encoder.layers.attn"),
    "minimax_m3_vl": ("", "encoder.layers.attn encoder.layers multi_modal_projector patch_merge_mlp"),
    "kimi_k25": ("", "encoder.blocks.attn"),
    "kimi_vl": ("", "encoder.blocks.attn encoder.blocks.mlp"),
    "muse_glimmer": ("vision_tower.layers.mlp vision_adapter", "vision_tower.layers.attn"),
    "muse_spark": (
        "vision_tower.patch_embedder vision_tower.layers.mlp vision_adapter vision_projection",
        "vision_tower.layers.attn",
    ),
    **dict.fromkeys(
        ("minicpmv4_6", "minicpmv4_7"),
        ("encoder.layers.mlp vit_merger merger.0", "encoder.layers.attn vit_merger.attn"),
    ),
    "internvl_chat": ("encoder.layers.mlp", "encoder.layers.attn"),
    "interns1": ("encoder.layers.mlp", "encoder.layers.attn"),
    "nemotron_h_omni": ("encoder.layers.mlp", "encoder.layers.attn"),
    "step3p7": ("transformer.resblocks.mlp vit_large_projector", "transformer.resblocks.attn"),
}


_PADS = ("glm4v", "glm46v", "glm4v_moe", "glm5_next", "internvl_chat", "interns1")


@pytest.mark.parametrize("name", WRAPPED)
def test_which_weights_ranks_share_and_how(name: str) -> None:
    """Of two that follow each other the first by its rows, with its bias, the second by its columns."""
    shared: dict[str, dict[str, list[int]]] = {"tp": {}, "attn_tp": {}}
    for weight in _encoder(name).weights:
        module, _, kind = weight.name.rpartition(".")
        parent = module.rpartition(".")[0] or module
        if weight.split is not None:
            splits = shared[weight.group].setdefault(parent, [])
            assert kind == "weight" or weight.split == splits[-1] == 0
            splits += [weight.split] if kind == "weight" else []
            assert weight.pads == (name in _PADS and parent.endswith(".attn"))
            assert weight.on_first_stage_alone == (parent == "pos_embed" or name in _FIRST)
        else:
            assert not weight.pads and weight.on_first_stage_alone == (name in _FIRST)
    of_all, of_groups = (set(names.split()) for names in _SHARED[name])
    deep = {"deepstack_merger_list.merger"} - of_all
    assert {*shared["tp"]} == of_all and {*shared["attn_tp"]} | deep == of_groups | deep
    for parent, splits in {**shared["tp"], **shared["attn_tp"]}.items():
        alone = "embed" in parent or parent in ("vit_large_projector", "resampler_model")
        repeats = parent.endswith("lconv1d") or parent == "resampler_model"
        splits = sorted(set(splits)) if repeats else splits
        if parent in ("audio_tower", "audio_tower.subsample_conv_projection", "vision_projection"):
            assert splits == [1]
            continue
        assert splits == ([0] if alone else [0, 1]), parent


def test_which_towers_may_be_whole_and_are_quantized() -> None:
    whole = {name for name in WRAPPED if WRAPPERS[name].may_be_whole}
    assert {*WRAPPED} - whole == {
        *("qwen2_vl", "mistral3", "llama4", "gemma3", "step3p7", "cohere2_vision", "lfm2_vl"),
        *("qwen3_omni_moe", "gemma4", "gemma4_unified", "nemotron_h_omni", "interns1", "ernie4_5_moe_vl"),
        *("paddleocr_vl", "qwen3_asr", "lighton_ocr", "muse_glimmer", "diffusion_gemma", *_HEARING),
        *("llava", "minicpmv4_6", "minicpmv4_7", "mllama"),
    }
    quantized = {name for name in WRAPPED if WRAPPERS[name].is_quantized}
    assert {*WRAPPED} - quantized == {
        *("ernie4_5_moe_vl", "gemma4_unified", "qwen3_asr", "lighton_ocr", "diffusion_gemma"),
        *("qwen2_audio", "glmasr"),
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen4_exp",
        "kimi_k25",
        "kimi_vl",
        "internvl_chat",
        "step3p7",
        "cohere2_vision",
        "minimax_m3_vl",
        "nemotron_h_omni",
        "interns1",
        "intern_s2_preview",
        "muse_spark",
    }


@pytest.mark.parametrize(("release", "ranks"), [((0, 5, 21), 4), ((0, 5, 22), 2)])
def test_who_shares_glms_mlps_follows_from_the_release(release: Number, ranks: int) -> None:
    """srt/models/glm4v.py: all ranks, and since then those that share a request. Its heads these always."""
    encoder = _encoder("glm4v_moe").of_release(release)
    sizes = {"tp": 4, "attn_tp": 2}
    split = {one.name: one.shape[one.split] // one.of_rank(sizes[one.group])[one.split]
             for one in encoder.weights if one.split is not None}  # fmt: skip
    assert {by for name, by in split.items() if ".mlp." in name or name.startswith("merger.")} == {ranks}
    assert split["blocks.attn.qkv_proj.weight"] == 2
