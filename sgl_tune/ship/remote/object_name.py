"""Parse `s3://bucket/folder/name.tar.gz`, `file:///...`: a bundle in a folder of an object store."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sgl_tune.errors import UsageError
from sgl_tune.ship.compression import SUFFIXES
from sgl_tune.ship.remote.remotes import without_secrets
from sgl_tune.units import shown

_ENDS = tuple(SUFFIXES)
_BUNDLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,199}")
_MEANS_MORE = "*?[]{}#\\"
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A bundle's address in an object store. `folder`: no slash at its end. `bundle`: None if the URL
    names no file."""

    scheme: str
    folder: str
    bundle: str | None = None

    @property
    def place(self) -> str:
        return f"{self.scheme}://{self.folder}"

    def of(self, name: str) -> str:
        return f"{self.place}/{name}"


def parse_object_name(url: str) -> ObjectName:
    scheme, _, path = url.partition("://")
    said = shown(without_secrets(url), 200)
    if "@" in path.partition("/")[0]:
        remedy = "the library of the store finds its own: variables, a profile, a role"
        raise UsageError(f"{said}: a URL holds no name and no password", remedy)
    parts = path.rstrip("/").split("/")
    if scheme == "file" and parts[0]:
        raise UsageError(f"{said} names the host {shown(parts[0])}", "write file:///absolute/path")
    if len(path) > _LONGEST or not path.isprintable() or any(one in path for one in _MEANS_MORE):
        remedy = f"at most {_LONGEST} characters, and none of {_MEANS_MORE}"
        raise UsageError(f"{said} is no plain path", remedy)
    if any(part in ("", ".", "..") for part in parts[scheme == "file" :]):
        raise UsageError(f"{said} names nothing to read from", f"write {scheme}://FOLDER/NAME.tar.gz")
    *above, last = parts
    if path.endswith("/") or not last.endswith(_ENDS) or not above:
        return ObjectName(scheme, "/".join(parts))
    return ObjectName(scheme, "/".join(above), checked_bundle(last))


def is_bundle_name(name: str) -> bool:
    return name.endswith(_ENDS) and _BUNDLE.fullmatch(name) is not None


def checked_bundle(name: str) -> str:
    if not is_bundle_name(name):
        raise UsageError(f"{shown(name)} is no name for a bundle", "letters, digits, and .tar.gz or .tar.zst")
    return name
