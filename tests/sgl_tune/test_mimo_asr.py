"""Servers of MiMo-V2-ASR: which end, and which are not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.memory.checkpoints import DATA
from tests.sgl_tune.ends import check_server

_FILE = json.loads((DATA / "published_families.json").read_text())["a/mimo-v2.5-asr-from-memory"]


@pytest.mark.parametrize(
    ("words", "ends", "unknown"),
    [
        ("", None, ""),
        ("--tp-size 8", None, ""),
        ("--pp-size 2", "no pipeline stages", ""),
        ("--quantization fp8", None, ""),
        ("--enable-lora --max-lora-rank 8 --lora-target-modules q_proj", None, "adapters beside its tower"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", None, "drafts beside its tower"),
    ],
)
@pytest.mark.parametrize("release", ["0.5.14", "0.5.23"])
def test_its_server(words: str, ends: str | None, unknown: str, release: str, tmp_path: Path) -> None:
    check_server(tmp_path, _FILE, words, ends, unknown, release)


def test_releases_before_have_no_class_of_it(tmp_path: Path) -> None:
    check_server(tmp_path, _FILE, "", "has a class MiMoV2ASRForCausalLM", "releases before 0.5.14", "0.5.13")
