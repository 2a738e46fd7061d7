"""Commands on both sides of a rule's edge, against the answers of SGLang's own wheels.

Asked because they notice a wrong change of a rule that no other recorded command noticed
(`python -m tests.mutants.edges --record FILE`), or where we had answered otherwise than SGLang.
"""

from __future__ import annotations

from tests.oracle.compare import page, tally
from tests.oracle.ours import our_answer
from tests.oracle.record import EDGES, read


def test_both_sides_of_an_edge_are_answered_as_sglang_answers_them() -> None:
    found = tally((command, our_answer(command), theirs) for command, theirs in read(EDGES))
    assert not found.apart, "\n".join(page(found))
    assert found.both_answer > 250
    assert found.both_refuse > 400
