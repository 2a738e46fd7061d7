"""The rows of the releases, beside what stands in their wheels."""

from __future__ import annotations

import json

import pytest

from runtime.server import releases
from runtime.server.errors import ConfigError
from runtime.server.releases import RELEASES, release_named
from tests.oracle.release_marks import RECORDED, marks_of_row

_MARKS = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("version", _MARKS)
def test_a_row_says_what_stands_in_its_wheel(version: str) -> None:
    row = release_named(version).release
    assert marks_of_row(row, _MARKS[version]) == _MARKS[version]


def test_both_sides_of_every_mark_were_read() -> None:
    assert len(_MARKS) >= 9
    fields = set().union(*_MARKS.values())
    told = {field: [marks[field] for marks in _MARKS.values() if field in marks] for field in fields}
    assert [field for field, values in told.items() if all(value == values[0] for value in values)] == []


def test_a_release_between_two_that_are_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple(row for row in RELEASES if row.version != "0.5.20")
    monkeypatch.setattr(releases, "RELEASES", known)
    monkeypatch.setattr(releases, "release_named", release_named.__wrapped__)
    with pytest.raises(ConfigError, match=r"SGLang 0\.5\.20 is not among the releases whose rules are known"):
        releases.release_named("0.5.20")
    assert releases.release_named("0.5.19").release == known[7]._replace(version="0.5.19")
