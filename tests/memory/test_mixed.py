"""Bytes a rank of ModelOpt's mixed checkpoints: SGLang's own classes', asked as tests.oracle.held asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

_QKV = ("q_proj", "k_proj", "v_proj")
# Of a family's tiny model: the algorithm of modules whose names end so.
CASES: dict[str, dict[str, str]] = {
    "nemotron_h": {"in_proj": "FP8", **dict.fromkeys(_QKV, "NVFP4"), "shared_experts.up_proj": "MXFP8"},
    "qwen3_5_moe_text": {"in_proj_z": "NVFP4", "out_proj": "FP8", "experts": "FP8", "o_proj": "W4A16_NVFP4"},
    "qwen3_moe": {"q_proj": "MXFP8", "k_proj": "MXFP8", "o_proj": "W4A16_NVFP4", "experts": "NVFP4"},
    "ernie4_5_moe": {**dict.fromkeys(_QKV, "FP8"), "experts": "MXFP8", "shared_experts.down_proj": "NVFP4"},
}
HELD = {
    ("nemotron_h", 1): 151936,
    ("nemotron_h", 2): 79920,
    ("qwen3_5_moe_text", 1): 248512,
    ("qwen3_5_moe_text", 2): 125992,
    ("qwen3_moe", 1): 150800,
    ("qwen3_moe", 2): 85264,
    ("ernie4_5_moe", 1): 157128,
}


def config_of(family: str) -> dict[str, Any]:
    model = make_reference(family)
    layers = {name: {"quant_algo": kind} for name, kind in _listed([*model.state_dict()], CASES[family])}
    section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    told = {"quantization_config": {**section, "kv_cache_scheme": None, "ignore": ["lm_head"]}}
    return {**served_json(model), "dtype": "bfloat16", **told}


def _listed(names: list[str], kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Experts as files have them, one by one."""
    for name in names:
        stem, _, tail = name.partition(".experts.")
        one = f"{stem}.experts.0.{tail}" if tail else name.removesuffix(".weight")
        for end, kind in kinds.items():
            if one.endswith(f".{end}") or (tail and end == "experts"):
                yield one, kind


@pytest.mark.parametrize("sglang", ["0.5.18", "0.5.23"])
@pytest.mark.parametrize(("family", "tp"), HELD)
def test_a_rank_holds_what_sglangs_class_does(family: str, tp: int, sglang: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(family)))
    told = {"model_path": str(tmp_path), "moe_runner_backend": "triton", "gpu": "H200"}
    flags = ServerFlags(**told, tp=tp, sglang_version=sglang)
    found = resolve_deployment(flags, environ={})
    comm = VirtualCommunicator(found.parallel, tp - 1)
    layers = range(found.model.num_layers)
    rank = Decoder(found.model, found.runtime, comm, torch.device("meta"), layers)
    assert sum(one.nbytes for one in rank.parameters()) == HELD[family, tp]
