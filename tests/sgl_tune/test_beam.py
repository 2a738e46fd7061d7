"""Beam: which of its servers end, what of them is not known, and what of them is tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_CONFIG = published_config("a/beam-501b-from-its-class")
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


def _rows(bits: dict[str, Any], a_token: dict[str, Any]) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": bits, "input_activations": a_token}
    told = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}
    return {**told, "quantization_status": "compressed", "config_groups": {"group_0": group}}


_FLOAT = {"num_bits": 8, "type": "float", "symmetric": True}
_A_TOKEN = {**_FLOAT, "strategy": "token", "dynamic": True}
_FP8 = _rows({**_FLOAT, "strategy": "channel", "dynamic": False}, _A_TOKEN)
_FP8_WHOLE = _rows({**_FLOAT, "strategy": "tensor", "dynamic": False}, {**_A_TOKEN, "strategy": "tensor"})


def _deployment(folder: Path, command: str, section: Any = None, arch: str = "sm100") -> Deployment:
    told = {} if section is None else {"quantization_config": section}
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **told}))
    flags = ServerFlags(arch=arch, sglang_version="0.5.23")
    server = f"python -m sglang.launch_server --model-path {folder} --tp 8 {command}"
    [one] = select_deployments(flags, command=server.split())
    return one


@pytest.mark.parametrize(
    ("section", "command", "why"),
    [
        (None, "", None),
        (None, "--moe-runner-backend triton", None),
        (None, "--moe-runner-backend flashinfer_cutlass", "Beam's experts plain are auto or triton alone"),
        (None, "--quantization fp8", "weights in fp8: SGLang has Beam's plain"),
        (None, "--moe-dense-tp-size 1", "--moe-dense-tp-size 1"),
        (None, "--ep 8 --enable-eplb", "BeamForCausalLM tells nobody"),
        (None, "--ep 8 --init-expert-location random", "SGLang moves none"),
        (None, "--ep 8 --moe-a2a-backend deepep", "SGLang sends none of Beam's rows"),
        (None, "--enable-lora --max-lora-rank 8 --lora-target-modules q_proj", "no adapters"),
        (_FP8, "", None),
        (_FP8, "--moe-runner-backend cutlass", "Beam's experts in fp8 are auto or triton alone"),
        (_FP8_WHOLE, "", "weights in compressed-tensors"),
        (_NVFP4, "", None),
        (_NVFP4, "--moe-runner-backend marlin", "Beam's experts in nvfp4 are flashinfer_trtllm alone"),
    ],
)
def test_where_its_class_ends(section: Any, command: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, command, section))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("command", "arch", "said"),
    [
        ("--dtype float16", "sm100", "another dtype than bfloat16"),
        ("--tp 4", "sm103", "four ranks of sm103"),
        (
            "--attention-backend flashinfer --speculative-algorithm NGRAM --speculative-num-draft-tokens 4",
            "sm100",
            "drafts",
        ),
    ],
)
def test_what_is_not_known_is_named(command: str, arch: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, command, arch=arch)
    assert refused.shape.model is None and refused.server.key
    assert f"beam does not go with {said}" in refused.shape.unknown


def test_a_length_that_sglang_and_transformers_take_otherwise_is_named() -> None:
    told = {name: value for name, value in _CONFIG.items() if name != "max_position_embeddings"}
    assert "max_position_embeddings is missing" in model_config(told).obstacles[0]
    assert not model_config(_CONFIG).obstacles


def test_its_experts_in_nvfp4_are_tuned(tmp_path: Path) -> None:
    ops = expected_keys(_deployment(tmp_path, "", _NVFP4))
    assert ops and any("moe" in str(one).lower() for one in ops)
