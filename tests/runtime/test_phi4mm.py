"""Phi-4-multimodal is a Phi 3 beside what it sees and hears with, where its file tells all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA
from tests.memory.quantized import SECTIONS
from tests.sgl_tune.ends import check_server

PHI = json.loads((DATA / "published_families.json").read_text())["microsoft/Phi-4-multimodal-instruct"]
_BESIDE = ("architectures", "auto_map", "audio_processor", "embd_layer", "vision_lora", "speech_lora")
_IMAGES, _SOUNDS = ("embd_layer", "image_embd_layer"), ("embd_layer", "audio_embd_layer")
_EAR = ("audio_processor", "config")


def _with(hf: Mapping[str, Any], section: tuple[str, ...], changes: Mapping[str, Any]) -> dict[str, Any]:
    if not section:
        return {**hf, **changes}
    return {**hf, section[0]: _with(hf[section[0]], section[1:], changes)}


def test_its_text_is_a_phi_3() -> None:
    text = {name: told for name, told in PHI.items() if name not in _BESIDE} | {"model_type": "phi3"}
    assert replace(model_config(PHI), encoder=None) == model_config(text)


def test_it_hears() -> None:
    encoder = model_config(PHI).encoder
    assert encoder is not None and encoder.hears


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        ((), {"vision_config": {"num_hidden_layers": 2}}, "vision_config is"),
        ((), {"img_processor": {}}, "img_processor is {}: published files have None"),
        ((), {"n_embd": 64}, "n_embd is 64"),
        ((), {"attention_bias": True}, "attention_bias is True: published files have False"),
        ((), {"full_attn_mod": 2}, "full_attn_mod is 2: published files have 1"),
        ((), {"rope_is_neox_style": False}, "rope_is_neox_style is False"),
        ((), {"rope_parameters": {"rope_type": "default"}}, "rope_parameters is"),
        (("rope_scaling",), {"factor": 2.0}, "a longrope by its short_factor and long_factor alone"),
        (("rope_scaling",), {"type": "su"}, "here is a longrope"),
        (_IMAGES, {"crop_size": 336}, "image_embd_layer: crop_size is 336: here is 448"),
        (_IMAGES, {"hd_transform_order": None}, "hd_transform_order is None: here is 'sub_glb'"),
        (_IMAGES, {"use_crops": True}, "image_embd_layer: use_crops: what becomes of it is not known"),
        (_SOUNDS, {"projection_cls": "linear"}, "projection_cls is 'linear': here is 'mlp'"),
        (_SOUNDS, {"use_qformer": True}, "use_qformer is True: here is False"),
        (_SOUNDS, {"downsample_rate": None}, "downsample_rate is None: a positive whole number"),
        (("audio_processor",), {"name": "whisper"}, "audio_processor: name is 'whisper'"),
        (_EAR, {"attention_heads": 15}, "attention_dim 1024 cannot be divided among 15 heads"),
        (_EAR, {"batch_norm": True}, "batch_norm is True: here is False"),
        (_EAR, {"chunk_size": 18}, "chunk_size is 18: here is -1"),
        (_EAR, {"ext_pw_out_channel": 512}, "ext_pw_out_channel is 512: here are as many as attention_dim"),
        (_EAR, {"time_reduction": 6}, "time_reduction is 6: here are 2, 4, 8, 16"),
        (_EAR, {"export": True}, "config: export: what becomes of it is not known here"),
        ((*_EAR, "encoder_embedding_config"), {"input_size": 64}, "its Conformer reads another"),
        ((*_EAR, "nemo_conv_settings"), {"is_causal": True}, "is_causal: what becomes of it is not known"),
        ((*_EAR, "relative_attention_bias_args"), {"type": "alibi"}, "type is 'alibi': here is 't5'"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(
    section: tuple[str, ...], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        _raise_obstacles(_with(PHI, section, changes))


def _raise_obstacles(hf: dict[str, Any]) -> None:
    for one in model_config(hf).obstacles:
        raise ConfigError(one)


@pytest.mark.parametrize("name", ["embd_layer", "audio_processor"])
def test_its_parts_are_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is None: an object is needed"):
        model_config({**PHI, name: None})


@pytest.mark.parametrize("name", ["num_hidden_layers", "partial_rotary_factor", "tie_word_embeddings"])
def test_what_its_own_class_would_say_is_to_be_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({one: told for one, told in PHI.items() if one != name})


@pytest.mark.parametrize(
    ("words", "ends", "unknown"),
    [
        ("", None, ""),
        ("--pp-size 2", "no pipeline stages", ""),
        ("--quantization fp8", None, "quantized weights beside its tower"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", None, "drafts beside its tower"),
        (
            "--enable-lora --max-lora-rank 320 --lora-target-modules qkv_proj",
            None,
            "adapters beside its tower",
        ),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    words: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    check_server(tmp_path, PHI, f"--trust-remote-code {words}", ends, unknown)


def test_a_quantized_one_is_known_where_its_file_says_so(tmp_path: Path) -> None:
    """And not where a server quantizes a plain one."""
    for listed, said in (
        ("lm_head", ""),
        ("model.layers.0.mlp.down_proj.base_layer", "what base_layer means"),
    ):
        config = {**PHI, "quantization_config": {**SECTIONS["int4"], "ignore": [listed]}}
        if said:
            with pytest.raises(ConfigError, match=said):
                model_config(config)
        else:
            check_server(tmp_path, config, "--trust-remote-code", None, "")
