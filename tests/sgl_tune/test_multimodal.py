"""A multimodal model's config.json: its text part is planned, its encoder counted, and what is not said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from tests.sgl_tune.planning import BLACKWELL, HOPPER, warm
from tests.sgl_tune.running import run_here

TEXT = {
    "model_type": "qwen3_vl_moe_text",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 512,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 4096,
    "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
}
TOWER = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 256}
WHOLE = {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "model_type": "qwen3_vl_moe",
    "dtype": "bfloat16",
    "text_config": TEXT,
    "vision_config": {**TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
}
ALONE = {**TEXT, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "norm_topk_prob": True}
FLAGS = ServerFlags(arch="sm100", sglang_version="0.5.23", flashinfer_version="0.7.2", tp=2).given()


def _folder(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _deployment(folder: Path, *command: str) -> Deployment:
    if not command:
        return resolve_deployment(ServerFlags(**{**FLAGS, "model_path": str(folder)}), environ={})
    flags = ServerFlags(arch="sm100", sglang_version="0.5.23", flashinfer_version="0.7.2")
    line = ("python", "-m", "sglang.launch_server", "--model-path", str(folder), "--tp", "2", *command)
    [found] = select_deployments(flags, line, None)
    return found


def _entries(folder: Path) -> Any:
    ran = warm("--format", "json", "--model", folder, "--tp", 2, *BLACKWELL)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["ops"]


def test_it_is_planned_as_its_text_part_alone(tmp_path: Path) -> None:
    whole, alone = _folder(tmp_path / "vl", WHOLE), _folder(tmp_path / "text", ALONE)
    assert _entries(whole) == _entries(alone) != []


def test_its_encoder_is_split_or_whole(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "vl", WHOLE)
    split, whole = (_deployment(folder, *words).model.encoder for words in ((), ("--mm-enable-dp-encoder",)))
    assert split is not None and any(weight.split is not None for weight in split.weights)
    assert whole is not None and all(weight.split is None for weight in whole.weights)


def test_a_report_says_that_images_are_not_counted(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "vl", WHOLE)
    fused = "FlashInfer's fused all-reduce"  # on by default for this family
    assert _deployment(folder).not_counted == f"not counting {fused}, what images take: not modelled"
    assert _deployment(folder).not_modelled == ""
    alone = _deployment(_folder(tmp_path / "text", ALONE))
    assert alone.not_counted == f"not counting {fused}: not modelled" and alone.model.encoder is None


def test_the_encoder_is_among_the_weights(tmp_path: Path) -> None:
    sizes = []
    for name, config in (("vl", WHOLE), ("text", ALONE)):
        folder = _folder(tmp_path / name, config)
        ran = run_here("mem-report", "--format", "json", "--model", folder, "--tp", 2, *HOPPER)
        assert ran.code == 0, ran.err
        [weights] = [phase for phase in json.loads(ran.out)["phases"] if phase["name"] == "weights"]
        sizes.append(weights["persistent_bytes"])
    assert 0 < sizes[0] - sizes[1] < 4 << 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text_config": 5}, "text_config is 5: an object is needed"),
        ({"vision_config": {**TOWER, "depth": "two"}}, "vision_config: depth is 'two'"),
        ({"text_config": {**TEXT, "rope_scaling": {"mrope_section": "all"}}}, "mrope_section is 'all'"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    ran = warm("--model", _folder(tmp_path / "vl", {**WHOLE, **change}), *BLACKWELL)
    assert ran.code == 2 and said in ran.err


def test_modules_are_excluded_by_the_names_they_have_in_the_whole(tmp_path: Path) -> None:
    excluded = ["language_model.layers.0.self_attn.qkv_proj", "model.visual*", "lm_head"]
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": excluded}
    model = _deployment(_folder(tmp_path / "vl", {**WHOLE, "quantization_config": section})).model
    assert model.excluded.linear([f"model.layers.0.self_attn.{part}_proj" for part in "qkv"])
    assert not model.excluded.linear([f"model.layers.1.self_attn.{part}_proj" for part in "qkv"])
