"""Gemma 3n: what no file of it says, and what its layers hold beside those of other families."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.runtime.config_files import config_file

_FILE = config_file("gemma3n_text")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"num_attention_heads": 6}, "hidden_size is 2048, no multiple of 6 heads"),
        ({"intermediate_size": [64, 64]}, "intermediate_size has 2 numbers for 35 layers"),
        ({"intermediate_size": [64.0] * 35}, "intermediate_size is 64.0"),
        ({"activation_sparsity_pattern": 0.95}, "activation_sparsity_pattern is 0.95: a list of 35"),
        ({"activation_sparsity_pattern": [1.0] * 35}, "at least 0 and below 1"),
        ({"altup_active_idx": 4}, "altup_active_idx is 4 of 4"),
        ({"num_kv_shared_layers": 35}, "a layer of each kind is needed before them"),
        ({"rope_parameters": {"full_attention": 7}}, "full_attention is no object"),
        ({"final_logit_softcapping": None}, "final_logit_softcapping is None"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input is 0"),
    ],
)
def test_what_no_gemma_3n_says(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_FILE, **told})


def test_layers_are_of_one_kind_where_as_many_of_their_gates_are_closed_and_they_read_the_same_keys() -> None:
    model = model_config(_FILE)
    assert [one.closed for one in model.caps] == [0.95] * 10 + [0.0] * 25
    assert model.key_layers == (*range(20), *(19 if layer % 5 == 4 else 18 for layer in range(20, 35)))
