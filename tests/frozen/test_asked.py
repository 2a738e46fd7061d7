"""Asks a dozen of the frozen questions in the smallest environment that starts here."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_tune.servers.server import Server, server_at
from tests.frozen.__main__ import ask, page
from tests.frozen.questions import frozen
from tests.ghost.environments import SMALLEST, python_of

# Of one GPU, so that one process imports the server; two of them are refused.
RELEASE, NUMBERS = "0.5.17", (9, 11, 12, 14, 17, 18, 23, 27, 47, 48, 57, 58)


def test_a_dozen_commands_are_answered_as_the_wheels_answered_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = server_at(python_of(SMALLEST))
    assert isinstance(server, Server), server
    all_of_them = frozen(RELEASE).questions
    asked = list(ask([all_of_them[number] for number in NUMBERS], server, tmp_path))
    how = [one.verdict.how for one in asked]
    assert (how.count("equal"), how.count("refused equally")) == (10, 2), "\n".join(page(RELEASE, asked))
