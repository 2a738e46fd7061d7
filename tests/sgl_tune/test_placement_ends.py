"""EPLB and recorders: of which classes a start ends, and what of TRT-LLM's kernels is known beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import published_server

MIXTRAL, NEMOTRON = "mistralai/Mixtral-8x7B-Instruct-v0.1", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8"
QWEN, LLAMA = "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B-Instruct"
EPLB, RECORDER = "--ep-size 2 --enable-eplb", "--expert-distribution-recorder-mode stat"


def _asked(folder: Path, model: str, release: str, words: str) -> Deployment:
    return published_server(folder, model, release, "B200", f"--tp-size 2 {words}")


@pytest.mark.parametrize(
    ("model", "release", "words", "ends"),
    [
        (MIXTRAL, "0.5.23", EPLB, True),
        (MIXTRAL, "0.5.23", "--ep-size 2", False),
        (LLAMA, "0.5.23", RECORDER, True),
        (QWEN, "0.5.12", EPLB, False),
        (QWEN, "0.5.12", RECORDER, False),
        (NEMOTRON, "0.5.22", EPLB, True),
        (NEMOTRON, "0.5.23", EPLB, False),
    ],
)
def test_a_class_that_tells_no_experts_is_not_recorded(
    model: str, release: str, words: str, ends: bool, tmp_path: Path
) -> None:
    found = never_starts(_asked(tmp_path, model, release, words))
    assert (found is not None and "tells nobody" in found) == ends, found


@pytest.mark.parametrize(
    ("release", "words", "known"),
    [
        ("0.5.22", EPLB, True),
        ("0.5.23", EPLB, False),
        ("0.5.22", f"{EPLB} --ep-num-redundant-experts 2", False),
        ("0.5.23", "--ep-size 2", True),
    ],
)
def test_trtllms_kernels_are_not_told_where_experts_lie_until_they_are(
    release: str, words: str, known: bool, tmp_path: Path
) -> None:
    found = _asked(tmp_path, QWEN, release, f"{words} --moe-runner-backend flashinfer_trtllm")
    assert (not unplanned(found)) == known
