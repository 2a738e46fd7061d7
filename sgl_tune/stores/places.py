"""The folders where a server of this user looks for its stores, and the variables that gather all in one
root."""

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
from sgl_tune.errors import UsageError
from sgl_tune.stores.find import STORE_IDS, Stored
from sgl_tune.stores.rows import gathering, places


def stores_of_this_user(only: str | None, environment: Mapping[str, str] = os.environ) -> list[Stored]:
    """Return the stores of the installed release, else of the newest known one."""
    release = kept_files(number(release_meant(None)))
    home = environment.get("HOME") or str(Path.home())
    found = places(release, environment, home, user_here())
    return [
        Stored(id, Path(place), Path(place))
        for id in STORE_IDS
        if only in (None, id)
        for place in found[id]
        if Path(place).is_dir()
    ]


def user_here() -> str:
    with contextlib.suppress(KeyError, OSError, ImportError):
        return getpass.getuser()
    return f"uid_{os.getuid()}"


def release_meant(asked: str | None) -> str:
    """Return the release that was named, else the installed one, else the newest known."""
    return asked or installed_version("sglang") or NEWEST.version


def variables(
    sglang_version: str | None, place: str, stores: Collection[str], scratch: str | None = None
) -> tuple[dict[str, str], str | None]:
    """Return the server's variables, and a doubt about the release or None. `sglang_version`: None for the
    installed one, else the newest known. `stores`: the existing stores. `scratch`: a writable folder for a
    server that may not write in `place`."""
    version = release_meant(sglang_version)
    release = number(version)
    return gathering(kept_files(release), place, stores, scratch), files_doubt(version, release)


def export_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """Return the variables as `export` lines for a shell."""
    return (f"export {name}={quote(value)}" for name, value in variables.items())


def kubernetes_lines(variables: Mapping[str, str]) -> Iterator[str]:
    """Return the `env:` of a container. $( is escaped, because Kubernetes replaces $(NAME) in a value."""
    yield "env:"
    for name, value in variables.items():
        yield f"- name: {name}"
        yield f"  value: {json.dumps(value.replace('$(', '$$('))}"


def place_named(flag: str, path: str) -> str:
    """Return an absolute path as the server sees it. It need not exist on this machine."""
    if not path.startswith("/"):
        raise UsageError(f"{flag} {path} is no absolute path", "give the path as the server will see it")
    return path.rstrip("/") or "/"
