"""`s3://bucket/folder/name.tar.gz`, `file:///...`, and `NAME.json` beside a bundle: digest, size, for whom.

Nobody signs the record: it decides nothing but which bundle is fetched and when one is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.records import WrongMember, from_plain
from sgl_tune.ship.remote.remotes import Machine, without_secrets
from sgl_tune.units import shown

SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tzst")
_BUNDLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,199}")
_MEANS_MORE = "*?[]{}#\\"
_LONGEST = 1000
SUFFIX = ".json"
LARGEST_RECORD = 64 << 10
_MOST_TOLD = 50
_VERSION = 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[\w .,:()/+-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """`folder` ends without a slash; `bundle` is None where the URL names no file."""

    scheme: str
    folder: str
    bundle: str | None = None

    def __str__(self) -> str:
        return f"{self.place}/{self.bundle or ''}"

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
    if path.endswith("/") or not last.endswith(SUFFIXES) or not above:
        return ObjectName(scheme, "/".join(parts))
    return ObjectName(scheme, "/".join(above), checked_bundle(last))


def checked_bundle(name: str) -> str:
    if not name.endswith(SUFFIXES) or not _BUNDLE.fullmatch(name):
        raise UsageError(f"{shown(name)} is no name for a bundle", "letters, digits, and .tar.gz or .tar.zst")
    return name


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    digest: str
    bytes: int
    gpu: str | None = None
    arch: str | None = None
    platform: str | None = None
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        return Machine(self.gpu, self.arch, self.platform)

    def to_json(self) -> str:
        return json.dumps({"schema_version": _VERSION, **asdict(self)}) + "\n"


def parse_record(raw: bytes, where: str) -> ObjectRecord:
    try:
        content = json.loads(raw)
        record: ObjectRecord = from_plain(ObjectRecord, content, "it")
        told = [one for one in (record.gpu, record.arch, record.platform) if one is not None]
        if content.get("schema_version") != _VERSION or record.bytes < 0:
            raise WrongMember("it is of another version")
        if not _DIGEST.fullmatch(record.digest) or not all(map(_WORD.fullmatch, (*told, *record.told))):
            raise WrongMember("a member of it is none that `push` writes")
        if len(record.told) > _MOST_TOLD or not all(type(one) is str for one in record.told.values()):
            raise WrongMember("a member of it is none that `push` writes")
    except (ValueError, RecursionError) as error:
        what = f"{where} describes no bundle: {str(error)[:200]}"
        raise CheckFailed(what, "push the bundle again") from None
    return record
