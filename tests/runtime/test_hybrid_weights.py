"""Weights of published hybrids beside transformers' own count of their parameters, both on meta tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.parallel_config import ParallelConfig
from tests.oracle.published import published

# All layers of them take a minute; a few have one of each kind.
_FEWER: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"num_hidden_layers": 4},
    "Qwen/Qwen3.5-35B-A3B": {"num_hidden_layers": 4, "layer_types": None},
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {
        "hybrid_override_pattern": "MEM*E",
        "num_hidden_layers": 5,
    },
}


def _text(name: str) -> dict[str, Any]:
    config = next(one.config for one in published().values() if one.name == name)
    return {**config.get("text_config", config), **_FEWER[name]}


def _theirs(told: dict[str, Any]) -> int:
    kept = {name: value for name, value in told.items() if name != "model_type"}
    config = transformers.CONFIG_MAPPING[told["model_type"]](**kept)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _ours(told: dict[str, Any]) -> int:
    model, one = model_config(told), ParallelConfig()
    runtime, comm = RuntimeConfig(moe_runner_backend="torch"), VirtualCommunicator(one)
    decoder = Decoder(model, runtime, comm, torch.device("meta"), range(model.num_layers))
    return sum(parameter.numel() for parameter in decoder.parameters())


@pytest.mark.parametrize("name", _FEWER)
def test_as_many_parameters_as_transformers_counts(name: str) -> None:
    told = _text(name)
    assert _ours(told) == pytest.approx(
        _theirs(told), rel=1e-6
    )  # a correction of scores is no parameter there
