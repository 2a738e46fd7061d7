"""What would change a key, a buffer or an op, and the core does not have: refused, or said in the verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.running import run_here

MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128,
    "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 4,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "torch_dtype": "bfloat16",
    "norm_topk_prob": True, "max_position_embeddings": 40960,
}  # fmt: skip
CUTLASS = "--moe-runner-backend flashinfer_cutlass"


def _section(method: str, **more: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **more}}


def _in_blocks(*block: int, plain: tuple[str, ...] = ()) -> dict[str, Any]:
    more = {"activation_scheme": "dynamic", "weight_block_size": block, "modules_to_not_convert": plain}
    return _section("fp8", **more)


def _in_modelopt(algorithm: str) -> dict[str, Any]:
    return _section("modelopt", quant_algo=algorithm)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("config", "flags", "code", "said"),
    [
        (_in_blocks(128, 128), "--gpu b200", 0, "tunes 1 op"),
        (_in_blocks(128, 128, plain=("model.layers.2.mlp.experts",)), "--gpu b200", 1, "cannot be planned"),
        (_in_blocks(64, 64), "--gpu b200", 1, "cannot be planned"),
        (_in_blocks(32, 32), "--gpu b200 -- --fp8-gemm-backend flashinfer_cutlass", 1, "not known: --fp8-"),
        (_in_modelopt("W4A16_NVFP4"), "--gpu b200", 1, "not known: quantization modelopt"),
        (_in_modelopt("W4A8_MXFP4_FP8"), "--gpu b200", 1, "not known: quantization modelopt"),
        (_in_modelopt("NVFP4"), f"--gpu h200 {CUTLASS}", 2, "does not take NVFP4 on sm90"),
        (
            {"architectures": ["BeamForCausalLM"]},
            f"--gpu h200 {CUTLASS}",
            1,
            "architecture 'BeamForCausalLM'",
        ),
        ({}, f"--gpu h200 -- --kv-cache-dtype fp4_e2m1 {CUTLASS}", 2, "fp4_e2m1 is not known"),
        ({}, "--gpu b200 -- --fp4-gemm-backend none", 2, "none is not known"),
        ({}, "--gpu h200 -- --tp 4 --nnodes 3", 2, "--nnodes 3 does not divide"),
        ({"num_experts": 8}, f"--gpu h200 --tp 16 --ep 16 {CUTLASS}", 2, "8 experts cannot"),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, "--gpu h200 --tp 3", 2, "8 KV heads and 3"),
    ],
)
def test_the_rest_is_refused(folder: Path, config: dict[str, Any], flags: str, code: int, said: str) -> None:
    (folder / "config.json").write_text(json.dumps({**MOE, **config}))
    model = ("--model-path", folder)
    ran = run_here("warm", "--dry-run", "--server", "core", *flags.split(), *model)
    assert ran.code == code and said in ran.out + ran.err, ran.out + ran.err


def test_a_variable_of_sglang_stands_in_the_verdict(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(MOE))
    start = ("python", "-m", "sglang.launch_server", "--model-path", folder, *CUTLASS.split())
    ran = run_here("warm", "--dry-run", "--server", "core", "--gpu", "h200", "--", "SGLANG_OPT=0", *start)
    assert "not followed by the core: SGLANG_OPT=0" in ran.out.splitlines()[0]
