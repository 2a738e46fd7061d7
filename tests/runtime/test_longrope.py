"""Tables of a longrope, beside transformers' factors: its PhiMoE asks for those of short requests alone."""

from __future__ import annotations

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


def test_one_long_request_makes_its_batch_long() -> None:
    rope, _ = _rope()
    assert rows_of(rope, torch.tensor([0, 5, FIRST - 1])).tolist() == [0, 5, FIRST - 1]
    assert rows_of(rope, torch.tensor([0, FIRST])).tolist() == [FIRST, 2 * FIRST]


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
