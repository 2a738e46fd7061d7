"""A chosen --fp8-gemm-backend that a GPU has no kernels of ends a server whose matrices ask for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
OF_32 = {**BLOCKS, "weight_block_size": [32, 32]}
TENSORS = {"quant_method": "fp8", "activation_scheme": "static"}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
# Widths of a tiny Llama, of which blocks can be cut.
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("section", "backend", "gpu", "release", "ends"),
    [
        (BLOCKS, "cutlass", "H200", "0.5.15", False),
        (BLOCKS, "cutlass", "H200", "0.5.16", True),
        (TENSORS, "cutlass", "B200", "0.5.23", True),
        (BLOCKS, "cutlass", "RTX PRO 6000", "0.5.23", False),
        (MODELOPT, "cutlass", "H200", "0.5.23", False),
        (BLOCKS, "flashinfer_trtllm", "H200", "0.5.12", True),
        (BLOCKS, "flashinfer_trtllm", "B200", "0.5.23", False),
        (BLOCKS, "flashinfer_deepgemm", "B200", "0.5.20", True),
        (BLOCKS, "flashinfer_deepgemm", "H200", "0.5.20", False),
        (BLOCKS, "flashinfer_cutedsl", "B200", "0.5.23", True),
        (OF_32, "cutlass", "H200", "0.5.23", False),
        (BLOCKS, "triton", "H200", "0.5.23", False),
        (None, "cutlass", "H200", "0.5.23", False),
    ],
)
def test_a_backend_that_the_gpu_has_not(
    section: dict[str, Any] | None, backend: str, gpu: str, release: str, ends: bool, tmp_path: Path
) -> None:
    told = served_json(make_reference("llama", **WIDE))
    quantized = {"quantization_config": section} if section else {}
    (tmp_path / "config.json").write_text(json.dumps({**told, "dtype": "bfloat16", **quantized}))
    command = ["sglang", "serve", "--model-path", str(tmp_path), "--fp8-gemm-backend", backend]
    found = select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command, environ={})[0]
    why = never_starts(found)
    assert (why is not None and f"--fp8-gemm-backend {backend} has no kernels for" in why) is ends
