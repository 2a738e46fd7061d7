"""Servers of Qwen's hybrids, and of Intern-S2-Mobius, whose layers share banks of experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints, published_config

NEXT, MOE, MOBIUS = "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3.5-35B-A3B", "a/intern-s2-mobius-of-2560"
CONFIGS = {one.name: one.config for one in checkpoints() if one.name in (NEXT, MOE, MOBIUS)}


def _altered(name: str, **text: Any) -> dict[str, Any]:
    config = CONFIGS[name]
    return (
        {**config, "text_config": {**config["text_config"], **text}}
        if MOE in name or MOBIUS in name
        else {
            **config,
            **text,
        }
    )


def _deployment(folder: Path, config: dict[str, Any], told: str = "", version: str = "0.5.23") -> Deployment:
    (folder / "config.json").write_text(json.dumps(config))
    command = f"python -m sglang.launch_server --model-path {folder} {told}"
    return select_deployments(ServerFlags(gpu="H200", sglang_version=version), command=command.split())[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_are_counted_by_an_interval(name: str, tmp_path: Path) -> None:
    assert never_starts(_deployment(tmp_path, CONFIGS[name], "--tp 4")) is None
    why = never_starts(_deployment(tmp_path, _altered(name, full_attention_interval=None), "--tp 4"))
    assert why is not None and why.startswith("full_attention_interval is missing")


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"full_attention_interval": 2}, "layer_types are not those of full_attention_interval 2"),
        ({"attention_bias": True}, "attention_bias is True: this runtime computes False"),
        ({"output_gate_type": "sigmoid"}, "output_gate_type is 'sigmoid'"),
    ],
)
def test_what_sglangs_classes_have_otherwise_is_named(name: str, text: dict[str, Any], said: str) -> None:
    listed = Checkpoint(CONFIGS[name]).model_config()
    kinds = [{"full": "full_attention"}.get(kind, "linear_attention") for kind in listed.attention_kinds]
    model = Checkpoint(_altered(name, **{"layer_types": kinds, **text})).model_config()
    assert not listed.obstacles and [said in one for one in model.obstacles] == [True]


@pytest.mark.parametrize("text", [{"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}])
@pytest.mark.parametrize("name", [NEXT, "Qwen/Qwen3-30B-A3B"])
def test_layers_without_experts_are_not_as_sglang_has_them(
    name: str, text: dict[str, Any], tmp_path: Path
) -> None:
    config = published_config(name)
    shape = _deployment(tmp_path, {**config, **text}).shape
    assert shape.model is None and "layers of no experts: its class has them in each" in shape.unknown


@pytest.mark.parametrize(
    ("version", "told", "said"),
    [
        ("0.5.18", "", None),
        ("0.5.23", "", None),
        ("0.5.23", "--dp 4 --enable-dp-attention", None),
        ("0.5.23", "--moe-a2a-backend deepep", "an all-to-all: its shared experts are partial sums"),
        ("0.5.23", "--quantization fp8", "quantized weights"),
        ("0.5.23", "--ep-num-redundant-experts 8", "experts that move"),
        ("0.5.23", "--speculative-algorithm NEXTN", "drafts"),
    ],
)
def test_what_is_not_known_of_mobius_is_named(
    version: str, told: str, said: str | None, tmp_path: Path
) -> None:
    shape = _deployment(tmp_path, CONFIGS[MOBIUS], f"--tp 4 {told}", version).shape
    assert (shape.model is None) is (said is not None)
    assert said is None or f"interns2_mobius_text does not go with {said}" in shape.unknown


def test_mobius_runs_triton_kernels_unless_told(tmp_path: Path) -> None:
    server = _deployment(tmp_path, CONFIGS[MOBIUS], "--tp 4").server
    assert server.moe_runner_backend == "triton_kernel"


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
def test_mobius_keeps_no_states_while_batches_overlap(version: str, tmp_path: Path) -> None:
    """_MAMBA_EXTRA_BUFFER_ARCHS of srt/arg_groups/overrides.py."""
    server = _deployment(tmp_path, CONFIGS[MOBIUS], "--tp 4", version).server
    assert server.states.keeps_prefixes and not server.states.extra_buffer
    with pytest.raises(UsageError, match="cannot keep states in an extra buffer"):
        _deployment(tmp_path, CONFIGS[MOBIUS], "--tp 4 --mamba-radix-cache-strategy extra_buffer", version)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"layer_types": None}, "layer_types is missing: SGLang asks for it"),
        ({"quantization_config": {"quant_method": "fp8"}}, "this runtime has plain layers of this family"),
    ],
)
def test_what_of_mobius_is_not_computed_is_named(text: dict[str, Any], said: str) -> None:
    model = Checkpoint(_altered(MOBIUS, **text)).model_config()
    assert any(said in one for one in model.obstacles)
