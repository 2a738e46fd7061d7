"""What SGLang's own call of DeepSeek-V4's experts asks FlashInfer for, recorded: all of it is planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.keys.keys import expected_keys
from tests.oracle.deepseek_v4 import cases, deployment_of, read

CASES = read()


@pytest.mark.parametrize("release", sorted({case["release"] for case, _ in CASES}))
def test_a_plan_has_the_keys_that_sglangs_own_call_asks_for(release: str, tmp_path: Path) -> None:
    for case, asked in _of(release):
        planned = {key for op in expected_keys(deployment_of(case, tmp_path)) for key in op.keys}
        assert planned == set(asked), case


def _of(release: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    return (one for one in CASES if one[0]["release"] == release)


def test_every_case_was_recorded() -> None:
    assert [case for case, _ in CASES] == [*cases()]
    assert all(asked for _, asked in CASES)
