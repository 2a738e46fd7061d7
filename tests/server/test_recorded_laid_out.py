"""What a rank holds of a layer once SGLang has laid it out, as its own methods answered for random layers."""

from __future__ import annotations

from collections import Counter

import pytest

from runtime.server.releases import RELEASES
from tests.oracle.laid_out import agrees, ours, recorded

ROWS = recorded()
OF = {one.version: one for one in RELEASES}


@pytest.mark.parametrize("version", sorted({version for version, _, _ in ROWS}))
def test_what_is_held_is_what_sglang_holds(version: str) -> None:
    own = [(case, answer) for one, case, answer in ROWS if one == version]
    wrong = [
        (case, answer, ours(case, OF[version]))
        for case, answer in own
        if not agrees(case, answer, OF[version])
    ]
    assert not wrong, wrong[:3]


def test_most_of_them_are_held() -> None:
    held = Counter(case["what"] for _, case, answer in ROWS if "held" in answer)
    assert len(held) >= 14 and sum(held.values()) > len(ROWS) // 2
