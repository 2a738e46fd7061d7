"""What a class unpacks is as SGLang's own has it, once made."""

from __future__ import annotations

import json

import pytest

from runtime.server.packed import unpacked
from tests.oracle.unpacked import RECORDED

FOUND = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("architecture", FOUND)
def test_it_looks_for_parts_of_what_sglangs_class_does(architecture: str) -> None:
    ours = unpacked(architecture, "compressed-tensors")
    for name, parts in FOUND[architecture]:
        assert (name in ours) == parts, name


def test_many_were_asked() -> None:
    assert len(FOUND) > 90 and {len(one) for one in FOUND.values()} >= {1, 2, 3}
