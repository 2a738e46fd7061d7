"""Tables of angles: one for all that turn alike, made longer where a server's positions are more."""

from __future__ import annotations

import torch

from runtime.layers.rope import rope_table
from runtime.models.rope_tables import RopeTables
from runtime.server.layer_config import RopeConfig

CPU = torch.device("cpu")


def test_a_longer_table_begins_as_it_did() -> None:
    ropes, rope = RopeTables(CPU), RopeConfig(16, 1e4, 64)
    name = ropes.lay(rope)
    assert name is not None and name == ropes.lay(RopeConfig(16, 1e4, 64)) and ropes.lay(None) is None
    other = ropes.lay(RopeConfig(16, 1e4, 200))
    ropes.reach(128)
    assert ropes.get_buffer(name).equal(rope_table(RopeConfig(16, 1e4, 128), CPU))
    assert other is not None and ropes.get_buffer(other).shape == (200, 16)
