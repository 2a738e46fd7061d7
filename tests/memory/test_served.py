"""Weights of a published checkpoint's server, on the backends that it comes to by itself on a Hopper and on a
Blackwell GPU, beside what SGLang's own model class makes on tensors without data.

Recorded by `python -m tests.oracle.held_servers`.
"""

from __future__ import annotations

import json

import pytest

from tests.memory.checkpoints import checkpoints
from tests.memory.served import RECORDED, deployed, held

HELD = json.loads(RECORDED.read_text())
PUBLISHED = {one.name: one for one in checkpoints()}


@pytest.mark.parametrize("name", HELD)
def test_the_last_rank_holds_as_many_bytes_as_sglangs_own_model(name: str) -> None:
    for gpu, places in HELD[name].items():
        for place, size in places.items():
            assert held(deployed(PUBLISHED[name], gpu, place)) == size, (gpu, place)


def test_most_of_what_is_served_is_recorded() -> None:
    """The others SGLang ends at, or knows by a class beside their files alone."""
    assert len(HELD) > 85 and sum(len(gpus) for gpus in HELD.values()) > 160
