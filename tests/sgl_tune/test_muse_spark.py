"""Muse Spark: which of its servers end, at what of its file, what of them is not known, and what is tuned."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.encoders.place import placed
from runtime.server.errors import ConfigError
from runtime.server.unpredicted import knows_forwards
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from tests.memory.checkpoints import published_config
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
        (
            _told(text={"layer_types": ["linear"] * 62}),
            _WHOLE,
            "layer_types names others than full_attention",
        ),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 62 layers"),
        ({"layer_types": ["full_attention"] * 63}, "layer_types has 63 entries for 62 layers"),
        ({"layer_rope_theta": 5}, "layer_rope_theta is 5: 62 numbers are needed"),
        ({"residual_gate_temperature": 0}, "residual_gate_temperature is 0: it must be above 0"),
    ],
)
def test_lists_and_numbers_that_are_no_layers_are_refused(text: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        model_config(_told(text=text))


_CONFIG = published_config("a/muse-spark-816b-from-its-classes")
_LISTED = [f"*{one}*" for one in ("self_attn", "expert_proj", "vision", "audio_tower")]


def _published(folder: Path, command: str, arch: str = "sm100", *plain: str) -> Deployment:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    told = {"quantization_config": {**section, "ignore": ["lm_head", *_LISTED, *plain]}} if plain else {}
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **told}))
    server = f"python -m sglang.launch_server --model-path {folder} --tp 8 --ep 8 {command}"
    flags = ServerFlags(arch=arch, sglang_version="0.5.23")
    [one] = select_deployments(flags, command=server.split())
    return one


@pytest.mark.parametrize(
    ("command", "arch", "plain", "said"),
    [
        ("--dtype float16", "sm100", (), "another dtype than bfloat16"),
        ("--moe-a2a-backend deepep", "sm100", (), "an all-to-all"),
        ("--enable-eplb", "sm100", (), "experts that move"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "sm100", (), "drafts"),
        ("", "sm90", ("model.language_model.layers.0.mlp",), "experts in nvfp4 but on TRT-LLM's kernels"),
    ],
)
def test_what_is_not_known_is_named(
    command: str, arch: str, plain: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    refused = _published(tmp_path, command, arch, *plain)
    assert refused.shape.model is None and refused.server.key
    assert f"muse_spark_text does not go with {said}" in refused.shape.unknown


def test_its_experts_are_tuned_unfinished_and_those_that_a_list_keeps_plain_too(tmp_path: Path) -> None:
    """Its calls were held against FlashInfer's own functions: answers have no columns yet, and experts of
    nvfp4 are called without a largest bucket."""
    trtllm = "--moe-runner-backend flashinfer_trtllm"
    [alone] = expected_keys(_published(tmp_path, trtllm))
    plain = "((1, 0), (0,), (1, 8), (1,), (1, 4096), (0,), (0,), (0,))"
    assert alone.op == "flashinfer::trtllm_bf16_moe" and plain in alone.keys[0]
    packed, beside = expected_keys(_published(tmp_path, trtllm, "sm100", "model.language_model.layers.0"))
    assert packed.op == "flashinfer::trtllm_fp4_block_scale_moe" and beside.keys == alone.keys
    assert "((1, 0), (0,), (1, 8), (1, 8), (1, 2048), (1, 256), (0,), (0,))" in packed.keys[0]
    assert packed.buckets[-1] == 8192


def test_forwards_without_experts_are_not_predicted_either() -> None:
    text = {**_CONFIG["text_config"], "mlp_layer_types": ["dense"] * 62}
    model = model_config({**_CONFIG, "text_config": text})
    assert model.moe is None and not knows_forwards(model)


def test_a_tower_for_all_is_whole(tmp_path: Path) -> None:
    """As SGLang's own class has it where each rank sees by itself."""
    encoder = placed(model_config(_CONFIG).encoder, "whole")
    assert encoder is not None
    assert sum(2 * math.prod(one.shape) * one.layers for one in encoder.weights) == 4091955200
