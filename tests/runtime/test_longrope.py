"""Tables of a longrope, beside transformers' factors: its PhiMoE asks for those of short requests alone."""

from __future__ import annotations

import math

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from runtime.layers.rope import rope_table, rows_of
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig
from tests.runtime.families import TINY, config_json, make_reference

FIRST, LONGEST = 64, 128


def _rope() -> tuple[RopeConfig, transformers.PhimoeConfig]:
    reference = make_reference("phimoe")
    rope = model_config(config_json(reference)).main_attention.rope
    assert rope is not None
    return rope, reference.config


@pytest.mark.parametrize(("length", "start", "scale"), [(FIRST, 0, 1.2), (FIRST + 1, FIRST, 1.3)])
def test_short_and_long_requests_turn_by_factors_of_their_own(length: int, start: int, scale: float) -> None:
    rope, config = _rope()
    table = rope_table(rope, torch.device("cpu"))
    assert table.shape == (FIRST + LONGEST, 16)
    frequencies, _ = ROPE_INIT_FUNCTIONS["longrope"](config, None, seq_len=length)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    wanted = torch.cat([angles.cos(), angles.sin()], -1) * scale
    torch.testing.assert_close(table[start : start + length], wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("length", "start"), [(FIRST, 0), (FIRST + 1, FIRST)])
def test_phi_3_turns_a_share_of_each_head_by_the_scale_of_its_lengths(length: int, start: int) -> None:
    told = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [9.0] * 4}
    reference = make_reference("phi3", rope_parameters={**told, "partial_rotary_factor": 0.5})
    rope = model_config(config_json(reference)).main_attention.rope
    assert rope is not None and rope.dim == 8
    frequencies, scale = ROPE_INIT_FUNCTIONS["longrope"](reference.config, None, seq_len=length)
    assert scale == pytest.approx((1 + math.log(2) / math.log(FIRST)) ** 0.5)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    table = rope_table(rope, torch.device("cpu"))[start : start + length]
    torch.testing.assert_close(table, torch.cat([angles.cos(), angles.sin()], -1) * scale, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("told", "said"),
    [({"short_mscale": 1.1}, "short_mscale is 1.1"), ({"attention_factor": 2.0}, "attention_factor is 2.0")],
)
def test_a_scale_that_one_of_the_two_does_not_read_is_named(told: dict[str, object], said: str) -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [9.0] * 8, **told}
    whole = config_json(make_reference("phi3"))
    assert any(said in why for why in model_config({**whole, "rope_parameters": rope}).obstacles)


def test_one_long_request_makes_its_batch_long() -> None:
    rope, _ = _rope()
    assert rows_of(rope, torch.tensor([0, 5, FIRST - 1])).tolist() == [0, 5, FIRST - 1]
    assert rows_of(rope, torch.tensor([0, FIRST])).tolist() == [FIRST, 2 * FIRST]


def test_minicpm_is_told_the_first_length_beside_the_factors() -> None:
    told = {"rope_type": "longrope", "short_factor": [1.5] * 8, "long_factor": [9.0] * 8}
    told["original_max_position_embeddings"] = FIRST
    whole = config_json(make_reference("minicpm"))
    rope = model_config({**whole, "rope_scaling": told}).main_attention.rope
    assert rope is not None and (rope.long_from, rope.dim) == (FIRST, 16)
    assert rope.parameters["long_mscale"] == pytest.approx((1 + math.log(2) / math.log(FIRST)) ** 0.5)
    share = {**told, "partial_rotary_factor": 0.5}
    assert model_config({**whole, "rope_scaling": share}).obstacles
    with pytest.raises(ConfigError, match="dim_model_base is 0"):
        model_config({**whole, "dim_model_base": 0})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"short_factor": [1.0] * 7}, "short_factor is .*: a list of 8 numbers"),
        ({"long_factor": [0.0] * 8}, "long_factor has 0.0: it must be above 0"),
        ({"long_mscale": None}, "long_mscale is None: a number is needed"),
        ({"original_max_position_embeddings": 129}, "is 129: a number of 1 to 128"),
        ({"rope_theta": 0}, "rope_theta is 0: it must be above 0"),
    ],
)
def test_what_a_longrope_lacks_is_named(told: dict[str, object], said: str) -> None:
    whole = config_json(make_reference("phimoe"))
    rope = {**TINY["phimoe"].sizes["rope_parameters"], **told}
    with pytest.raises(ConfigError, match=said):
        model_config({**whole, "rope_parameters": rope})
