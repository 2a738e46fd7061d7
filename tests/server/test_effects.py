"""What every flag of every release does, said once."""

from __future__ import annotations

import pytest

from runtime.server.asked import is_read
from runtime.server.flags import flags_of
from runtime.server.flags.effects import NOT_MODELLED, READ_ELSEWHERE, READ_IN_PART, WITHOUT_EFFECT
from runtime.server.releases import RELEASES

TABLES = (*NOT_MODELLED.values(), *WITHOUT_EFFECT.values(), READ_ELSEWHERE)
NAMES = [name for names in TABLES for name in names.split()]


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_every_flag_is_read_or_without_effect_or_not_modelled(release: str) -> None:
    fields = {flag.field for flag in flags_of(release).flags}
    places = {
        name: NAMES.count(name) + (is_read(name) and name not in READ_IN_PART.split()) for name in fields
    }
    assert {name: count for name, count in places.items() if count != 1} == {}


def test_what_is_read_in_part_is_read_and_not_modelled() -> None:
    unmodelled = " ".join(NOT_MODELLED.values()).split()
    assert [name for name in READ_IN_PART.split() if not is_read(name) or name not in unmodelled] == []


def test_no_name_is_of_no_release() -> None:
    known = {flag.field for row in RELEASES for flag in flags_of(row.version).flags}
    assert set(NAMES) - known == set()
