"""The way out of a refusal: of the changes that a rule names, the first that the server starts with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runtime.server.asked import default_of, is_read
from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import flag_of, name_of, spelled
from runtime.server.releases import Release, release_named
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.options import flag_names

_MOST_CHANGES = 2
_MOST_TRIED = 4
# What a server is for: to serve another model, or on other ranks, is no way out.
_KEPT = ("model_path", "tp_size", "nnodes", "node_rank")


def way_out(inputs: Inputs, error: ConfigError) -> str | None:
    """The rule's own words where it names no argument to change."""
    if not error.tries:
        return error.remedy
    changes = _changes(inputs, error, _MOST_CHANGES)
    return None if changes is None else _said(release_named(inputs.sglang_version).release, changes)


def _changes(inputs: Inputs, error: ConfigError, most: int) -> Mapping[str, Any] | None:
    """One, or else one and what it takes for the refusal that comes then."""
    refused: list[tuple[Mapping[str, Any], Inputs, ConfigError]] = []
    for change in _candidates(inputs, error):
        other = replace(inputs, asked=replace(inputs.asked, **change))
        if other.asked == inputs.asked:
            continue
        try:
            if _has_kernels(deploy(other)):
                return change
        except ConfigError as refusal:
            refused.append((change, other, refusal))
    for change, other, then in refused[:_MOST_TRIED] if most > 1 else ():
        more = _changes(other, then, most - 1)
        if more is not None:
            return {**change, **more}
    return None


def _candidates(inputs: Inputs, error: ConfigError) -> Iterator[Mapping[str, Any]]:
    """Named changes first, then each argument left out, then its other values."""
    yield from (one for one in error.tries if not isinstance(one, str))
    names = [one for one in error.tries if isinstance(one, str) and is_read(one) and one not in _KEPT]
    yield from ({name: default_of(name)} for name in names if inputs.asked.is_set(name))
    release = release_named(inputs.sglang_version).release
    for name in names:
        flag = flag_of(release, name)
        yield from ({name: value} for value in (flag.choices or () if flag else ()))


def _has_kernels(found: Deployment) -> bool:
    majors = found.server.backend.kernel_majors
    return not majors or found.server.gpu.major in majors


def _said(release: Release, changes: Mapping[str, Any]) -> str:
    left_out = [name_of(release, name) for name, value in changes.items() if value == default_of(name)]
    given = [spelled(release, name, value) for name, value in changes.items() if value != default_of(name)]
    said = [" ".join(["leave out", *left_out]) if left_out else "", " ".join(given)]
    ours = all(words.split()[0] in flag_names() for words in given)
    return " and ".join(filter(None, said)) + ("" if ours else ", in a server command after --")
