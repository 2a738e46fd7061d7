"""What SGLang's class of a family counts by another field than transformers' does, or has not: by name."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from tests.runtime.config_files import config_file
from tests.runtime.families import TINY
from tests.runtime.families.reference import sizes_of

_COUNTED = "first_k_dense_replace 1: SGLang goes by that alone"
_SPARSE = ["sparse", "sparse"]


def _file(name: str, **told: Any) -> dict[str, Any]:
    """As a checkpoint has it."""
    file = config_file(name, **sizes_of(name))
    published = TINY[name].as_published
    return {**(file if published is None else published(file)), **told}


_BIASLESS = (
    "deepseek_v3",
    "gemma",
    "glm_moe_dsa",
    "granite",
    "granitemoe",
    "llama4_text",
    "olmoe",
    "step3p5",
)
_APART = (
    "arcee",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt_oss",
    "mellum",
    "minimax_m2",
    "olmoe",
    "qwen2_moe",
    "qwen3_moe",
)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        *((name, {"attention_bias": True}, "attention_bias is True") for name in (*_BIASLESS, "exaone_moe")),
        *((name, {"tie_word_embeddings": True}, "tie_word_embeddings is True") for name in _APART),
        ("gemma", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        *(
            (name, {"head_dim": 8}, "head_dim is 8")
            for name in ("exaone4", "granitemoe", "olmo2", "qwen2_moe")
        ),
        ("olmoe", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        ("glm4_moe", {"mlp_layer_types": _SPARSE}, f"mlp_layer_types are not those of {_COUNTED}"),
        ("glm4_moe_lite", {"mlp_layer_types": _SPARSE}, f"mlp_layer_types are not those of {_COUNTED}"),
        ("deepseek_v3", {"mlp_layer_types": _SPARSE}, f"mlp_layer_types are not those of {_COUNTED}"),
        ("exaone_moe", {"is_moe_layer": None}, "is_moe_layer is not what first_k_dense_replace says"),
        ("exaone_moe", {"is_moe_layer": [True, True]}, "is_moe_layer is not what first_k_dense_replace says"),
        ("exaone4", {"sliding_window_pattern": 2}, "SGLang counts the letters of one"),
        (
            "exaone4",
            {"sliding_window_pattern": "LLLG"},
            "layer_types are not those of sliding_window_pattern",
        ),
        (
            "gemma2",
            {"layer_types": ["full_attention"] * 2},
            "layer_types are not those of every second layer",
        ),
        ("step3p5", {"moe_layers_enum": None}, "moe_layers_enum is missing"),
        ("step3p5", {"moe_layers_enum": "0,1"}, "mlp_layer_types are not those of moe_layers_enum"),
        ("llama4_text", {"no_rope_layers": [1] * 4}, "no_rope_layers are others than each 4th"),
        ("llama4_text", {"moe_layers": [0]}, "moe_layers are not those of interleave_moe_layer_step 2"),
        (
            "ernie4_5_moe",
            {"moe_layer_start_index": 0, "moe_layer_interval": 2},
            "SGLang counts other layers by them",
        ),
        ("ernie4_5_moe", {"moe_layer_end_index": -1}, "SGLang counts other layers by them"),
        ("hunyuan_v1_dense", {"use_qk_norm": None}, "use_qk_norm is not true"),
        ("hunyuan_v1_moe", {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        *(("minimax_m2", {one: None}, f"{one} is not") for one in ("use_qk_norm", "use_routing_bias")),
        ("minimax_m2", {"scoring_func": None}, "scoring_func is not 'sigmoid'"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": None}, "hybrid_layer_pattern is missing"),
        ("mimo_v2_flash", {"rope_parameters": {"rope_type": "default"}}, "SGLang takes rope_theta"),
        ("nemotron_h", {"layers_block_type": ["linear_attention", "moe"]}, "SGLang knows mamba, attention"),
        ("qwen3_next", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "are stretched"),
    ],
)
def test_what_sglangs_class_has_otherwise_is_named(name: str, told: dict[str, Any], said: str) -> None:
    assert not model_config(_file(name)).obstacles
    assert any(said in one for one in model_config(_file(name, **told)).obstacles)
