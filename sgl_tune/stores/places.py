"""Where a server of this user looks for its stores, and the variables with which it finds all of a root."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote

from runtime.flashinfer.versions import number
from runtime.sglang.kept_files import files_doubt, kept_files
from runtime.sglang.releases import NEWEST
from sgl_tune.deployment.versions import installed_version
from sgl_tune.stores.find import STORE_IDS, Stored
from sgl_tune.stores.rows import gathering, places


def stores_of_this_user(only: str | None, environment: Mapping[str, str] = os.environ) -> list[Stored]:
    """The installed release's, else the newest known."""
    release = kept_files(number(release_meant(None)))
    home = environment.get("HOME") or str(Path.home())
    found = places(release, environment, home, _user())
    return [
        Stored(id, Path(place), Path(place))
        for id in STORE_IDS
        if only in (None, id)
        for place in found[id]
        if Path(place).is_dir()
    ]


def _user() -> str:
    with contextlib.suppress(KeyError, OSError, ImportError):
        return getpass.getuser()
    return f"uid_{os.getuid()}"


def release_meant(asked: str | None) -> str:
    """The installed one where nobody says, else the newest known."""
    return asked or installed_version("sglang") or NEWEST.version


def variables(
    sglang_version: str | None, place: str, stores: Collection[str], scratch: str | None = None
) -> tuple[dict[str, str], str | None]:
    """And what is doubtful about that release: None is the installed one, else the newest known. `stores` are
    those that are there; with a `scratch` folder the server may not write in `place`."""
    version = release_meant(sglang_version)
    release = number(version)
    return gathering(kept_files(release), place, stores, scratch), files_doubt(version, release)


def export_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """For a shell."""
    return (f"export {name}={quote(value)}" for name, value in variables.items())


def kubernetes_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """The `env:` of a container. Kubernetes replaces $(NAME) in a value, unless it is escaped."""
    yield "env:"
    for name, value in variables.items():
        yield f"- name: {name}"
        yield f"  value: {json.dumps(value.replace('$(', '$$('))}"
