"""Flags that are seldom set, against the answers of SGLang's own wheels.

Recorded by `python -m tests.oracle --rare --record FILE`, a hundred commands a release on a GPU of each kind.
Left out is what we are known to answer otherwise: sizes that SGLang refuses only once they are resolved,
architectures that a release has not yet, and those that test_recorded_architectures.py lists. It guards the
rules and measures nothing.
"""

from __future__ import annotations

from tests.oracle.compare import page, tally
from tests.oracle.ours import our_answer
from tests.oracle.record import RARE, read


def test_seldom_flags_are_answered_as_sglang_answers_them() -> None:
    found = tally((command, our_answer(command), theirs) for command, theirs in read(RARE))
    assert not found.apart, "\n".join(page(found))
    assert found.both_answer > 900
