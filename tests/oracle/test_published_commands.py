"""Server commands as people publish them: each is read, or refused with its reason."""

from __future__ import annotations

import pytest

from tests.oracle.published_commands import (
    RELEASES,
    PublishedCommand,
    differences,
    listed,
    our_reading,
    recorded,
)


def test_each_is_taken_or_refused_as_the_releases_own_parsers_do() -> None:
    assert list(differences(recorded())) == []


@pytest.mark.parametrize("command", [one for one in listed() if one.refused], ids=lambda one: one.source)
@pytest.mark.parametrize("release", RELEASES)
def test_what_no_parser_gets_to_see_is_refused_by_name(command: PublishedCommand, release: str) -> None:
    assert command.refused is not None
    assert command.refused in our_reading(command, release).get("refused", "it was read")


def test_forty_and_more_are_listed_each_with_its_source() -> None:
    sources = [command.source for command in listed()]
    assert len(sources) >= 40 and len(set(sources)) == len(sources)
