"""The encoders of dots.ocr and of Step3-VL 10B: what SGLang's classes ask of a file, and what follows."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA

PUBLISHED = json.loads((DATA / "published_families.json").read_text())
DOTS, STEP = PUBLISHED["rednote-hilab/dots.ocr"], PUBLISHED["stepfun-ai/Step3-VL-10B"]


def _step(**vision: Any) -> dict[str, Any]:
    told = {**STEP["vision_config"], **vision}
    return {**STEP, "vision_config": {name: value for name, value in told.items() if value != "missing"}}


def _bytes(hf: dict[str, Any]) -> int:
    encoder = model_config(hf).encoder
    assert encoder is not None
    return 2 * sum(math.prod(one.shape) * one.layers for one in encoder.weights)


def test_steps_tower_has_what_its_flags_say() -> None:
    """As SGLang 0.5.23's own class was asked for the second."""
    assert _bytes(STEP) == 3962029568
    other = {"use_cls_token": True, "use_ln_post": True, "ls_init_value": None}
    assert _bytes(_step(**other)) == 3962029568 + 2 * (4 * 1536 - 47 * 2 * 1536)
    assert _bytes(_step(use_abs_posemb=False)) == 3962029568 - 2 * 52**2 * 1536


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"use_rope2d": False}, "use_rope2d is False"),
        ({"ls_init_value": "missing"}, "ls_init_value is missing"),
        ({"mlp_ratio": "x"}, "mlp_ratio is 'x'"),
        ({"width": 0}, "width is 0"),
    ],
)
def test_what_sglang_asks_of_steps_tower_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_step(**told))


def test_steps_text_is_a_plain_qwen_3() -> None:
    with pytest.raises(ConfigError, match="model_type is 'llama': SGLang has step_robotics with qwen3"):
        model_config({**STEP, "text_config": {**STEP["text_config"], "model_type": "llama"}})


def test_a_quantized_step_lists_its_tower_as_sglang_calls_it() -> None:
    """test_quantized.py has what its lists mean."""
    (said,) = model_config({**STEP, "quantization_config": {"quant_method": "fp8"}}).obstacles
    assert "no list means vision_model..transformer.resblocks.0.attn.qkv_proj, as SGLang calls it" in said


def test_dots_tower_is_that_of_its_config_class_where_nothing_is_told() -> None:
    assert _bytes({**DOTS, "vision_config": None}) == _bytes(DOTS)
    bare = {**DOTS["vision_config"], "post_norm": False}
    assert _bytes(DOTS) - _bytes({**DOTS, "vision_config": bare}) == 2 * 1536
