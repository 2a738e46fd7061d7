"""Our answers about servers against SGLang's own, recorded from its wheels by `python -m tests.oracle`."""

from __future__ import annotations

import pytest

from runtime.server.releases import RELEASES
from tests.oracle.compare import FIELDS, Tally, page, tally
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.record import RECORDED, read

# What is not told exactly yet. A rate only rises: raise it here with the rule.
NOT_YET: dict[str, float] = {}


@pytest.fixture(scope="module")
def found() -> Tally:
    return tally((command, our_answer(command), theirs) for command, theirs in read(RECORDED))


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_what_sglang_makes_of_it(name: str, found: Tally) -> None:
    assert found.rate(name) >= NOT_YET.get(name, 1.0), "\n".join(page(found))


def test_commands_are_refused_where_sglang_refuses_them(found: Tally) -> None:
    apart = len(found.apart["refused there, planned here"]) + len(found.apart["refused here, started there"])
    assert apart <= NOT_YET.get("refused", 0) * found.asked, "\n".join(page(found))


def test_recorded_commands_are_of_every_release_and_gpu() -> None:
    commands = [command for command, _ in read(RECORDED)]
    releases = {row.version for row in RELEASES}
    assert {command.release for command in commands} == releases, "docs/new-release.md: keep the answers"
    assert {command.gpu for command in commands} == set(USUAL_GPUS)
    assert len(commands) > 300
