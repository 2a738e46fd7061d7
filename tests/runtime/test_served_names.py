"""Lists of plain matrices, where SGLang's class calls them otherwise than a checkpoint does."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from tests.memory.quantized import FIRST, SECTIONS, config_of

_GRANITE, _LFM2, _LFM2_MOE, _KIMI, _FALCON, _TRINITY, *_ = FIRST


def _why(name: str, section: str, plain: list[str]) -> str:
    key = "ignore" if "ignore" in SECTIONS[section] else "modules_to_not_convert"
    told: dict[str, Any] = config_of(name, section)
    listed = {**SECTIONS[section], key: ["lm_head", *plain]}
    return " ".join(model_config({**told, "quantization_config": listed}).obstacles)


@pytest.mark.parametrize(
    ("name", "section", "plain", "said"),
    [
        (_GRANITE, "fp8 a row", ["model.layers.0.mamba.in_proj"], "layers.0.mamba.in_proj is plain in"),
        (_GRANITE, "fp8 a row", ["model.layers.0.mixer.in_proj"], "layers.0.mamba.in_proj is quantized in"),
        (_GRANITE, "fp8 a row", [r"re:.*\.m\w+\.in_proj"], None),
        (_GRANITE, "fp8 a row", ["model.layers.0.shared_mlp.input_linear"], None),
        (_GRANITE, "fp8 a row", [f"model.layers.1.self_attn.{one}_proj" for one in "qkv"], None),
        (_GRANITE, "fp8 a row", ["re:.*block_sparse_moe"], None),
        (_GRANITE, "fp8 a row", ["re:.*block_sparse_moe.router"], None),
        (_GRANITE, "fp8 a row", ["re:.*input_linear"], "block_sparse_moe.input_linear is plain in the file"),
        (_GRANITE, "awq", ["mamba"], "layers.0.mamba.in_proj is plain in the file"),
        (_LFM2, "fp8 a row", ["re:.*self_attn.*"], None),
        (_LFM2, "fp8 a row", [f"model.layers.2.self_attn.{one}_proj" for one in "qkv"], "q_proj is plain in"),
        (_LFM2, "fp8 blocks", [f"model.layers.2.self_attn.{one}_proj" for one in "qkv"], None),
        (_LFM2, "fp8 a row", ["re:.*conv.in_proj", "re:.*feed_forward.w[13]"], None),
        (_LFM2_MOE, "fp8 a row", ["re:.*feed_forward.w2"], "feed_forward.w2 is plain in the file"),
        (_LFM2_MOE, "fp8 a row", ["re:.*feed_forward.*"], None),
        (_LFM2_MOE, "awq", ["feed_forward.experts"], None),
        (_LFM2_MOE, "int4", ["re:.*experts.*w2"], "feed_forward.experts.0.w2 is plain in the file"),
        (_LFM2_MOE, "int4", ["re:.*feed_forward.gate$"], None),
        (_LFM2_MOE, "int4", ["re:.*feed_forward.gate"], "feed_forward.w1 is quantized in the file"),
        (_KIMI, "fp8 a row", ["re:.*kv_b_proj"], None),
        (_KIMI, "fp8 a row", [], "model.layers.2.self_attn.kv_b_proj is quantized in the file"),
        (_KIMI, "fp8 a row", ["re:.*self_attn.*"], None),
        (
            _KIMI,
            "int4",
            ["re:.*self_attn.*", "re:.*shared_experts.*"],
            "shared_experts.gate_proj is plain in",
        ),
        (
            _KIMI,
            "int4",
            ["re:.*self_attn.*", "re:.*experts.*w1"],
            "block_sparse_moe.experts.0.w1 is plain in",
        ),
        (_KIMI, "fp8 blocks", ["kv_b_proj", "block_sparse_moe"], "block_sparse_moe"),
        (_FALCON, "fp8 a row", [], "model.layers.0.mamba.in_proj is quantized in the file"),
        (_FALCON, "fp8 a row", ["re:.*mamba.*"], None),
        (_FALCON, "fp8 a row", ["re:.*mamba.*", "re:.*self_attn.*"], "self_attn.q_proj is plain in the file"),
        (_FALCON, "fp8 blocks", ["mamba", "feed_forward"], "feed_forward.gate_proj is plain in the file"),
        (_TRINITY, "fp8 a row", [], "experts.0.gate_up_proj is quantized in the file"),
        (_TRINITY, "fp8 a row", ["re:.*mlp.experts.*"], None),
        (
            _TRINITY,
            "int4",
            ["re:.*mlp.experts.*", "re:.*self_attn.[qkv]_proj"],
            "self_attn.q_proj is plain in",
        ),
    ],
)
def test_a_list_means_the_same_to_the_class_or_is_named(
    name: str, section: str, plain: list[str], said: str | None
) -> None:
    found = _why(name, section, plain)
    assert found == "" if said is None else said in found
