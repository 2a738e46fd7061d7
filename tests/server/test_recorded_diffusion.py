"""Servers with --dllm-algorithm, against the answers of SGLang's own wheels.

Recorded by `python -m tests.oracle.diffusion --record FILE`, some a release on a GPU of its own.
"""

from __future__ import annotations

from runtime.server.releases import RELEASES
from tests.oracle.compare import page, tally
from tests.oracle.ours import our_answer
from tests.oracle.record import DIFFUSION, read


def test_servers_of_blocks_are_answered_as_sglang_answers_them() -> None:
    pairs = read(DIFFUSION)
    found = tally((command, our_answer(command), theirs) for command, theirs in pairs)
    assert not found.apart, "\n".join(page(found))
    assert found.both_answer > 250
    assert found.both_refuse > 100
    assert {command.release for command, _ in pairs} == {row.version for row in RELEASES}
