"""Where a rule begins and ends: at a release that is known, and the ones that end have begun."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server import family_backends
from runtime.server.backends import BACKENDS, FIRST, Number
from runtime.server.checks import ROWS
from runtime.server.checks.row import NEVER
from runtime.server.families import GEMMA_WRITES_BACK_SINCE, WRITE_BACKS
from runtime.server.family_backends import FAMILY_BACKENDS
from runtime.server.releases import RELEASES

KNOWN = [row.number for row in RELEASES]
SPANS = [(row.said, row.since, row.until) for row in ROWS] + [
    (f"{row.backend} of {sorted(row.architectures)[0]}", row.since, row.until) for row in FAMILY_BACKENDS
]


def _begins() -> Iterator[tuple[str, Number | None]]:
    for name, row in BACKENDS.items():
        yield f"{name} is tuned", row.tuned_since
        yield f"{name} under flashinfer's all-to-all", row.under_flashinfer_a2a_since
        yield f"{name} takes mxfp8", row.mxfp8_since
        yield from ((f"{name} takes {method}", since) for method, since in row.takes.items())
        yield from ((f"{name} goes with {a2a}", since) for a2a, since in row.all_to_alls.items())
    yield from ((f"{sorted(row.architectures)[0]} writes back", row.since) for row in WRITE_BACKS)
    yield "Gemma writes back", GEMMA_WRITES_BACK_SINCE


def _begins_well(since: Number | None) -> bool:
    """What has always stood names no release: 0.5.12 is the first that is known."""
    return since is None or since == FIRST or since in KNOWN[1:]


def test_a_row_stands_from_one_known_release_to_another() -> None:
    never = (NEVER, family_backends.NEVER)
    assert [
        what
        for what, since, until in SPANS
        if not _begins_well(since) or (until not in never and (until not in KNOWN or since >= until))
    ] == []


def test_what_a_backend_takes_begins_with_a_known_release() -> None:
    assert [what for what, since in _begins() if not _begins_well(since)] == []


def test_releases_are_in_order_and_nothing_is_before_the_first() -> None:
    assert sorted(KNOWN) == KNOWN and len({*KNOWN}) == len(KNOWN)
    assert KNOWN[0] > FIRST and KNOWN[-1] < family_backends.NEVER < NEVER
