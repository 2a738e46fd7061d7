"""Where a server keeps the encoder of a multimodal model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.encoders.place import EncoderPlace, placed
from runtime.server.encoders.weight import Encoder, EncoderWeight
from runtime.server.errors import ConfigError
from tests.server.asking import model, server

SPLIT = EncoderWeight("blocks.weight", (8, 4), 0)


def _vl(architecture: str) -> Checkpoint:
    text = model("qwen3").hf
    return Checkpoint({"architectures": [architecture], "model_type": "qwen3_vl", "text_config": text})


@pytest.mark.parametrize(
    ("architecture", "asked", "place"),
    [
        ("Qwen3VLForConditionalGeneration", {}, "split"),
        ("Qwen3VLForConditionalGeneration", {"mm_enable_dp_encoder": True}, "whole"),
        ("Gemma3ForConditionalGeneration", {}, "split"),
        ("Llama4ForConditionalGeneration", {}, "nowhere"),
        ("Llama4ForConditionalGeneration", {"enable_multimodal": True}, "split"),
        ("MuseGlimmerForConditionalGeneration", {"language_model_only": True}, "nowhere"),
    ],
)
def test_which_server_has_one(architecture: str, asked: dict[str, Any], place: str) -> None:
    assert server(_vl(architecture), **asked).encoder == place


@pytest.mark.parametrize(("version", "place"), [(15, "whole"), (16, "split")])
def test_kimi_vls_ranks_share_it_since_a_release(version: int, place: str) -> None:
    text = model("deepseek").hf
    hf = {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "text_config": text}
    assert server(Checkpoint(hf), version).encoder == place


@pytest.mark.parametrize(
    ("architecture", "version", "asked", "is_refused"),
    [
        ("Qwen2_5_VLForConditionalGeneration", 22, {"dp_size": 2}, True),
        ("Qwen2_5_VLForConditionalGeneration", 21, {"dp_size": 2}, False),
        ("Qwen2_5_VLForConditionalGeneration", 22, {"dp_size": 8}, False),
        ("Qwen2_5_VLForConditionalGeneration", 22, {"dp_size": 2, "mm_enable_dp_encoder": True}, False),
        ("Llama4ForConditionalGeneration", 23, {"dp_size": 2}, False),
        ("Llama4ForConditionalGeneration", 23, {"dp_size": 2, "enable_multimodal": True}, True),
        ("Qwen3VLForConditionalGeneration", 23, {"dp_size": 2}, False),
        ("Lfm2VlForConditionalGeneration", 23, {"dp_size": 2, "disable_radix_cache": True}, True),
        ("DotsOCRForCausalLM", 23, {"dp_size": 2}, True),
        ("DotsVLMForCausalLM", 23, {"dp_size": 2}, True),
        ("PaddleOCRVLForConditionalGeneration", 23, {"dp_size": 2, "mm_enable_dp_encoder": True}, True),
        ("Qwen3ASRForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("Qwen3OmniMoeForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("LightOnOCRForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("POINTSV15ChatModel", 23, {"dp_size": 2}, True),
        ("LlavaForConditionalGeneration", 23, {"dp_size": 2, "mm_enable_dp_encoder": True}, True),
        ("MiniCPMV4_6ForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("MuseGlimmerForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("StepVLForConditionalGeneration", 23, {"dp_size": 2, "mm_enable_dp_encoder": True}, True),
        ("InternS1ForConditionalGeneration", 23, {"dp_size": 2}, True),
        ("InternS1ForConditionalGeneration", 23, {"dp_size": 2, "mm_enable_dp_encoder": True}, True),
        ("Gemma3ForConditionalGeneration", 23, {"dp_size": 2, "mm_enable_dp_encoder": True}, True),
        ("MiMoV2ForCausalLM", 23, {"dp_size": 2}, False),  # which is told no sections
        ("NemotronH_Nano_Omni_Reasoning_V3", 23, {"dp_size": 2}, True),
    ],
)
def test_an_encoder_that_is_split_otherwise_than_it_sums_does_not_start(
    architecture: str, version: int, asked: dict[str, Any], is_refused: bool
) -> None:
    """srt/layers/dp_attention.py of 0.5.22 on."""
    given = {"tp_size": 8, "enable_dp_attention": True, **asked}
    with pytest.raises(ConfigError, match=r"encoder.* needs") if is_refused else nullcontext():
        server(_vl(architecture), version, **given)


@pytest.mark.parametrize("place", ["nowhere", "split", "whole"])
def test_where_there_is_none_there_stays_none(place: EncoderPlace) -> None:
    assert placed(None, place) is None


def test_one_that_cannot_be_whole_stays_split() -> None:
    encoder, free = Encoder((SPLIT,)), Encoder((SPLIT,), may_be_whole=True)
    assert placed(encoder, "whole") == placed(encoder, "split") == encoder
    whole = placed(free, "whole")
    assert whole is not None and [weight.of_rank(4) for weight in whole.weights] == [(8, 4)]
    assert placed(free, "nowhere") is None and placed(None, "split") is None
