"""Which release is meant, and the variables with which its server finds all of a root."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from shlex import quote

from runtime.server.errors import ConfigError
from runtime.server.releases import Named, release_named
from runtime.server.stores import gathering
from sgl_tune.deployment.versions import installed_version


def release_meant(asked: str | None) -> Named:
    """An installed one that is too old to be known, or between the releases, says nothing."""
    if asked:
        return release_named(asked)
    try:
        return release_named(installed_version("sglang"))
    except ConfigError:
        return release_named(None)


def variables(
    sglang_version: str | None, place: str, stores: Collection[str], scratch: str | None = None
) -> tuple[dict[str, str], str | None]:
    """And what is doubtful about that release: None is the installed one, else the newest known. `stores` are
    those that are there; with a `scratch` folder the server may not write in `place`."""
    named = release_meant(sglang_version)
    return gathering(named.release, place, stores, scratch), named.warning


def export_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """For a shell."""
    return (f"export {name}={quote(value)}" for name, value in variables.items())


def kubernetes_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """The `env:` of a container. Kubernetes replaces $(NAME) in a value, unless it is escaped."""
    yield "env:"
    for name, value in variables.items():
        yield f"- name: {name}"
        yield f"  value: {json.dumps(value.replace('$(', '$$('))}"
