"""Each row of the checks by small commands that it refuses alone, and their neighbours that start.

Drawn from what a row looks at, with one flag less, one value more, a release earlier and later. Where `asked`
stands, the release's own wheel was asked and says the same; the others were read in its raises and asserts.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.releases import RELEASES
from tests.oracle.commands import Command
from tests.oracle.ours import our_answer

_CASES = Path(__file__).parent / "refusal_cases.jsonl.gz"


def _cases() -> list[dict[str, Any]]:
    with gzip.open(_CASES, "rt") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return _cases()


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_a_command_is_refused_for_its_reason_or_starts(release: str, cases: list[dict[str, Any]]) -> None:
    for case in cases:
        if case["release"] == release:
            command = Command(0, release, case["gpu"], case["model"], tuple(case["argv"]))
            assert our_answer(command).get("refused") == case["refused"], " ".join(command.argv)
