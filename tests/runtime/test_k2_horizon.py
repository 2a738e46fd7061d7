"""K2 Horizon without mixed values: a Llama whose norms are of groups, and one with experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.random_models import compare

_PLAIN = {"mova_num_experts": 0, "mova_num_experts_per_tok": 0, "attention_gate_func": None}
_DENSE = {**_PLAIN, "num_experts": 0, "num_experts_per_tok": 0, "num_shared_experts": 0}


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("told", [_PLAIN, {**_DENSE, "mlp_only_layers": [0, 1]}], ids=["experts", "dense"])
def test_layers_of_plain_attention_are_computed(told: dict[str, Any], groups: int, tmp_path: Path) -> None:
    assert compare("k2_horizon", {**told, "layernorm_num_groups": groups}, tmp_path).said == "equal"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"mova_num_experts": 0}, "attention_gate_func is told without mova_num_experts"),
        ({"attention_gate_func": None}, "attention_gate_func is None: SGLang computes"),
        ({**_DENSE, "mlp_only_layers": [0]}, "mlp_only_layers are not all layers"),
        ({**_DENSE, "mlp_only_layers": [0, 1], "num_shared_experts": 1}, "num_shared_experts is 1 beside no"),
        ({"mlp_only_layers": [1]}, "mlp_only_layers are not the first so many"),
        ({"xllm_source_router_gemm_partitions": None}, "xllm_source_router_gemm_partitions is missing"),
        ({"mova_num_experts_per_tok": 9}, "mova_num_experts_per_tok is 9: there are 6"),
    ],
)
def test_what_sglangs_class_ends_at_is_named(told: dict[str, Any], said: str) -> None:
    from runtime.server.decoders.known import model_config
    from tests.runtime.families import sizes_of

    file = {**sizes_of("k2_horizon", **told), "model_type": "k2_horizon"}
    assert [why for why in model_config(file).obstacles if said in why]
