"""Kernels of sparse attention, told and not told, against the answers of SGLang's own wheels.

Recorded by `python -m tests.oracle.sparse --count 260 --record FILE`, in seven releases on four GPUs.
"""

from __future__ import annotations

from tests.oracle.compare import page, tally
from tests.oracle.ours import our_answer
from tests.oracle.record import SPARSE, read


def test_kernels_of_sparse_attention_are_those_that_sglang_settles() -> None:
    pairs = read(SPARSE)
    found = tally((command, our_answer(command), theirs) for command, theirs in pairs)
    assert not found.apart, "\n".join(page(found))
    assert found.both_answer > 200
    assert found.both_refuse > 20
    assert found.agreed["sparse_kernels"] == found.both_answer
