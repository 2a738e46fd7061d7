"""Each row of the checks by small commands that it refuses first, and their neighbours that start.

They tell a row, each part of its condition and each edge of its releases from a wrong one. Where `asked`
stands, the release's own wheel was asked and says the same; the others were read in its raises and asserts.
After a row that was meant to change: `python -m tests.server.test_refusal_cases`, and look at what it prints.
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


def _read() -> list[dict[str, Any]]:
    with gzip.open(_CASES, "rt") as file:
        return [json.loads(line) for line in file]


def _refused(case: dict[str, Any]) -> str | None:
    command = Command(0, case["release"], case["gpu"], case["model"], tuple(case["argv"]))
    return our_answer(command).get("refused")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return _read()


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_a_command_is_refused_for_its_reason_or_starts(release: str, cases: list[dict[str, Any]]) -> None:
    apart = [
        f"{_refused(case)}, not {case['refused']}: {' '.join(case['argv'])}"
        for case in cases
        if case["release"] == release and _refused(case) != case["refused"]
    ]
    assert not apart, "\n".join(apart)


def _answer_again() -> None:
    """What the wheel was asked is kept where only the words of the refusal changed."""
    cases = _read()
    for case in cases:
        refused = _refused(case)
        if refused != case["refused"]:
            print(case["release"], *case["argv"], f"\n  {case['refused']}\n  {refused}")
            if (refused is None) != (case["refused"] is None):
                case.pop("asked", None)
            case["refused"] = refused
    _CASES.write_bytes(gzip.compress("".join(json.dumps(case) + "\n" for case in cases).encode(), mtime=0))


if __name__ == "__main__":
    _answer_again()
