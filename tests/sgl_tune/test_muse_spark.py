"""Muse Spark, whose layers are not computed: which of its servers end, and at what of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.ends import why_it_ends
from tests.sgl_tune.planning import BLACKWELL, warm

_TEXT = {"layer_types": ["sliding_attention"] * 61 + ["full_attention"], "mlp_layer_types": None}
_DENSE = {"mlp_layer_types": ["dense"] * 62}
_WHOLE = {"tp": 8, "ep": 8}
_TRTLLM = {"moe_runner_backend": "flashinfer_trtllm"}
_FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}

_NOT = ["lm_head", "model.vision_tower*", "model.language_model.layers.0*"]


def _nvfp4(*ignored: str) -> dict[str, Any]:
    section = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": [*_NOT, *ignored],
    }
    return {"quantization_config": section}


def _told(text: Any = None, vision: Any = None, audio: Any = None, **whole: Any) -> dict[str, Any]:
    told = {"text_config": {**_TEXT, **(text or {})}, "vision_config": vision, "audio_config": audio}
    return {
        "architectures": ["MuseSparkForConditionalGeneration"],
        "model_type": "muse_spark",
        "dtype": "bfloat16",
        **told,
        **whole,
    }


@pytest.mark.parametrize(
    ("told", "flags", "why"),
    [
        (_told(), _WHOLE, None),
        ({"architectures": ["MuseSparkForConditionalGeneration"], "model_type": "muse_spark"}, _WHOLE, None),
        (_told(), {}, None),
        (_told(), {"arch": "cpu", "tp": 2}, None),
        (_told(), {"tp": 8}, "--ep-size 1 splits each expert over 8 ranks"),
        (
            _told(),
            {"tp": 8, "ep": 2},
            "over 4 ranks, and SGLang's Muse Spark has whole ones alone: --ep-size 8",
        ),
        (_told(text=_DENSE), {"tp": 8}, None),
        (_told(), {"pp": 2}, "has no pipeline stages"),
        (_told(**_FP8), _WHOLE, "weights in fp8: SGLang has plain ones"),
        (_told(**_nvfp4()), _WHOLE, "nvfp4 do not run on auto: --moe-runner-backend flashinfer_trtllm"),
        (_told(**_nvfp4()), {**_WHOLE, **_TRTLLM}, None),
        (_told(**_nvfp4("model.language_model.layers.*.mlp*")), _WHOLE, None),
        (_told(**_nvfp4(*(f"layers.{n}.mlp" for n in range(62)))), _WHOLE, None),
        (_told(text=_DENSE, **_nvfp4()), _WHOLE, None),
        (_told(**_nvfp4()), {**_WHOLE, "arch": "sm90"}, None),
        (_told(**_nvfp4()), {**_WHOLE, **_TRTLLM, "arch": "sm90"}, "flashinfer_trtllm"),
        (
            _told(text={"moe_hidden_size": 96}, **_nvfp4()),
            {**_WHOLE, "arch": "sm90"},
            "moe_hidden_size is 96",
        ),
        (_told(text={"num_local_experts": 12}), _WHOLE, "12 experts cannot be divided among 8 ranks"),
        (_told(text={"num_attention_heads": 12}), _WHOLE, "12 attention heads cannot be divided"),
        (_told(text={"num_key_value_heads": 3}), _WHOLE, "3 KV heads cannot be divided"),
        (_told(text={"num_key_value_heads": 4}), _WHOLE, None),
        (_told(text={"layer_types": ["full_attention"]}), _WHOLE, "a list of 1: SGLang asks for one of 62"),
        (
            _told(text={"layer_types": ["linear"] * 62}),
            _WHOLE,
            "layer_types names others than full_attention",
        ),
        (_told(text={"layer_rope_theta": 5}), _WHOLE, "layer_rope_theta is 5: SGLang asks for one of 62"),
        (_told(text={"hidden_act": None}), _WHOLE, "hidden_act is None"),
        (_told(text={"attention_bias": None}), _WHOLE, None),
        (_told(text={"num_shared_experts": 1}), _WHOLE, "num_shared_experts is 1"),
        (_told(text={"rope_parameters": {"rope_type": "yarn"}}), _WHOLE, "rope_type is 'yarn'"),
        (_told(text={"rope_parameters": {}}), _WHOLE, "rope_parameters have no rope_theta"),
        (_told(text={"rope_parameters": {}, "layer_rope_theta": [0] * 62}), _WHOLE, None),
        (_told(vision={"hidden_size": 768}), _WHOLE, "out_hidden_size is 6144: its tower makes rows of 3072"),
        (_told(vision={"hidden_size": 768}, out_hidden_size=3072), _WHOLE, None),
        (_told(vision={"hidden_act": "silu"}), _WHOLE, "vision_config: hidden_act is 'silu'"),
        (
            _told(vision={"rope_parameters": {"rope_type": "yarn"}}),
            _WHOLE,
            "vision_config: rope_type is 'yarn'",
        ),
        (_told(vision={"num_attention_heads": 7}), _WHOLE, "1536 values cannot be divided among 7 heads"),
        (
            _told(vision={"num_attention_heads": 4}),
            _WHOLE,
            "num_attention_heads is 4, no multiple of 8 ranks",
        ),
        (_told(audio={"depths": [2]}), _WHOLE, "audio_config: depths is a list of 1"),
        (_told(audio={"num_hidden_layers": 3}), _WHOLE, "audio_config: patch_sizes is a list of 4"),
        (_told(audio={"out_hidden_size": 64}), _WHOLE, "out_hidden_size is 64, and text is 8192 wide"),
    ],
)
def test_which_servers_end(told: Any, flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert (found is None) if why is None else (found is not None and why in found), found


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 1),
        (("--mm-enable-dp-encoder",), 0),
        (("--language-only", "--encoder-urls", "http://a:1"), 0),
        (("--enable-dp-attention", "--dp-size", "2"), 0),
    ],
)
def test_a_tower_that_is_whole_or_elsewhere_is_not_split(
    flags: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_told(vision={"num_attention_heads": 4})))
    line = ("--model-path", tmp_path, "--tp-size", "8", "--ep-size", "8", *flags)
    ran = warm(*BLACKWELL, "--", "python", "-m", "sglang.launch_server", *line)
    assert (ran.code, "its tower" in ran.out or "vision_config" in ran.out) == (code, code == 1), ran.out
