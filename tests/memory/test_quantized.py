"""What a rank holds of the first layers of quantized checkpoints, beside what SGLang's own classes make."""

from __future__ import annotations

import json

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.memory.quantized import FIRST, RECORDED, SECTIONS, config_of

HELD = json.loads(RECORDED.read_text())
# Its class makes them, and here they are refused: a rank's columns are no multiple of a group, its rows none
# of a packed word, or experts are kept plain by an expression of GPTQ's, which other classes do not ask.
REFUSED = (
    ("LiquidAI/LFM2-8B-A1B", "int4", "8"),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "int4", "8"),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "gptq", "8"),
    *(("arcee-ai/Trinity-Mini", "gptq", tp) for tp in "128"),
)


def _held(name: str, section: str, tp: int, major: int) -> list[int] | None:
    """None: its class ends, and so does ours."""
    comm, runtime = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1), RuntimeConfig(sm_major=major)
    try:
        model = Checkpoint(config_of(name, section)).model_config()
        if model.obstacles:
            return None
        rank = Decoder(model, runtime, comm, torch.device("meta"), range(model.num_layers))
    except ConfigError:
        return None
    return [sum(one.nbytes for one in rank.parameters()), 0]


@pytest.mark.parametrize(("name", "section"), [(name, one) for name in HELD for one in HELD[name]])
def test_a_rank_holds_as_many_bytes_as_sglangs_own_class(name: str, section: str) -> None:
    """Which are those of an H200, and of a B200 the same."""
    for tp, held in HELD[name][section].items():
        ends = isinstance(held, str) or (name, section, tp) in REFUSED
        for major in (9, 10):
            assert _held(name, section, int(tp), major) == (None if ends else held), (tp, major)


def test_every_format_is_asked_of_every_family() -> None:
    assert HELD.keys() == FIRST.keys() and all(one.keys() == SECTIONS.keys() for one in HELD.values())
