"""Graphs of prefills beside chunks that decode, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import published_server

QWEN = "Qwen/Qwen3-30B-A3B"
PIECES = "--cuda-graph-backend-prefill tc_piecewise"
WHY = "goes with no graphs of prefills but breakable ones"


@pytest.mark.parametrize(
    ("release", "words", "why"),
    [
        ("0.5.19", PIECES, WHY),
        ("0.5.18", PIECES, None),
        ("0.5.20", PIECES, WHY),
        ("0.5.23", "--cuda-graph-backend-prefill full", WHY),
        ("0.5.23", "--cuda-graph-backend-prefill breakable", None),
        ("0.5.20", "--cuda-graph-backend-prefill disabled", None),
        ("0.5.20", f"{PIECES} --speculative-algorithm NGRAM --disable-overlap-schedule", None),
    ],
)
def test_mixed_chunks_go_with_breakable_graphs(
    release: str, words: str, why: str | None, tmp_path: Path
) -> None:
    asked = f"--enable-mixed-chunk --tp-size 2 {words}"
    found = never_starts(published_server(tmp_path, QWEN, release, "H200", asked))
    assert found is None if why is None else found is not None and why in found
