"""What an upgrade changes, held against SGLang's own answers to the same command under every release."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.releases import RELEASES, release_named
from sgl_tune.deployment.deployment import Inputs, deploy
from sgl_tune.explain.differences import Difference, differences
from sgl_tune.keys.plan import Plan, make_plan
from tests.oracle.commands import Command
from tests.oracle.compare import FIELDS, same
from tests.oracle.published import published
from tests.oracle.record import read
from tests.oracle.upgrades import GPUS, UPGRADES
from tests.sweeps import taken

Answers = dict[str, dict[str, Any]]  # by release
Case = tuple[str, str, tuple[str, ...]]


@cache
def answered() -> dict[Case, Answers]:
    """What SGLang starts, by model, GPU and flags; a release that refuses a command has no answer."""
    found: dict[Case, Answers] = defaultdict(dict)
    for command, answer in read(UPGRADES):
        if "server" in answer:
            found[command.model, command.gpu, command.argv][command.release] = answer["server"]
    return found


@cache
def planned(case: Case, release: str) -> Plan:
    model, gpu, argv = case
    command = Command(0, release, gpu, model, argv)
    row = release_named(release).release
    inputs = Inputs(
        name=model,
        asked=changed(Asked(), parse(flags_of(release), command.argv).given),
        checkpoint=Checkpoint(published()[model].config),
        gpu=find_gpu(gpu),
        sglang_version=release,
        flashinfer_version=row.flashinfer,
        cache_dir=Path("/nowhere"),
    )
    return make_plan(deploy(inputs), gpus=())


def test_every_release_was_asked() -> None:
    asked = {command.release for command, _ in read(UPGRADES)}
    assert asked == {row.version for row in RELEASES}, "docs/new-release.md: keep the answers"


def told(case: Case, before: str, after: str) -> dict[str, Difference]:
    return {one.field: one for one in differences(planned(case, before), planned(case, after))}


def theirs(old: dict[str, Any], new: dict[str, Any]) -> set[str]:
    return {name for name in FIELDS if not same(name, old[name], new[name])}


@pytest.mark.parametrize(
    "case", answered(), ids=lambda case: f"{case[0]} on {case[1]} {' '.join(case[2][2:])}"
)
def test_no_difference_between_two_releases_is_missing_and_none_is_invented(case: Case) -> None:
    servers = answered()[case]
    assert len(servers) > 8
    for before, after in taken(combinations(servers, 2)):
        ours = told(case, before, after)
        assert ours.keys() & set(FIELDS) == theirs(servers[before], servers[after]), (before, after)
        for name in ours.keys() & set(FIELDS):
            assert same(name, ours[name].before, servers[before][name]), (name, before)
            assert same(name, ours[name].after, servers[after][name]), (name, after)


@pytest.mark.parametrize(
    "case", answered(), ids=lambda case: f"{case[0]} on {case[1]} {' '.join(case[2][2:])}"
)
def test_since_is_the_release_from_which_sglang_has_it_so(case: Case) -> None:
    servers = answered()[case]
    oldest, *_, newest = servers
    for name, one in told(case, oldest, newest).items():
        if name in FIELDS:
            same_as_newest = [same(name, row[name], servers[newest][name]) for row in servers.values()]
            turn = len(servers) - same_as_newest[::-1].index(False)
            assert one.since == list(servers)[turn], name
    for name, one in told(case, newest, oldest).items():
        if name in FIELDS:
            same_as_oldest = [same(name, row[name], servers[oldest][name]) for row in servers.values()]
            assert one.until == list(servers)[same_as_oldest.index(False) - 1], name


def test_no_difference_between_two_gpus_is_missing_and_none_is_invented() -> None:
    asked = 0
    for model, gpu, argv in answered():
        for other in set(GPUS) - {gpu}:
            here, there = (model, gpu, argv), (model, other, argv)
            for release in answered()[here].keys() & answered().get(there, {}).keys():
                ours = differences(planned(here, release), planned(there, release))
                expected = theirs(answered()[here][release], answered()[there][release])
                assert {one.field for one in ours} & set(FIELDS) == expected, (here, release)
                assert not any(one.since or one.until for one in ours)
                asked += 1
    assert asked > 100


def test_the_way_down_tells_the_same_differences_as_the_way_up() -> None:
    case = next(iter(answered()))
    for before, after in taken(combinations(answered()[case], 2)):
        up, down = told(case, before, after), told(case, after, before)
        assert up.keys() == down.keys()
        assert all(
            (one.before, one.after) == (down[name].after, down[name].before) for name, one in up.items()
        )
