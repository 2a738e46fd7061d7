"""Whatever a config.json holds, it is a server or one sentence that names the member."""

import copy
import random
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from tests.server.asking import FP8, NVFP4, model, server

_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1.5, 10**30, float("nan"), "x", "", "NVFP4")
_VALUES += ([], {}, [1], [None], {"a": 1}, {"a": []})
_MODELS = (
    model("deepseek", FP8, index_topk=2048, auto_map={"AutoConfig": "a.B"}),
    model("nemotron", NVFP4),
    model("gpt_oss", {"quant_method": "mxfp4"}, layer_types=["sliding_attention"], sliding_window=128),
    model("qwen3", text_config={"dtype": "bfloat16", "num_attention_heads": 8, "hidden_size": 64}),
)


def _damaged(chance: random.Random) -> Checkpoint:
    hf: Any = copy.deepcopy(dict(chance.choice(_MODELS).hf))
    section = hf
    while True:
        name = chance.choice(sorted(section))
        if not isinstance(section[name], dict) or not section[name] or chance.random() < 0.3:
            section[name] = chance.choice(_VALUES)
            return Checkpoint(hf)
        section = section[name]


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_config_is_a_server_or_one_sentence(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        broken, algorithm = _damaged(chance), chance.choice((None, "EAGLE"))
        try:
            server(broken, chance.choice(("B200", "H200")), speculative_algorithm=algorithm)
        except ConfigError as error:
            assert len(error.message) > 20, broken.hf
