"""`NAME.json` beside a bundle in a store that knows no digests: digest, size, for whom and of what.

Nobody signs it, and it decides nothing but which bundle is fetched and when one is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sgl_tune.errors import CheckFailed
from sgl_tune.records import WrongMember, from_plain
from sgl_tune.ship.remotes import Machine

SUFFIX = ".json"
LARGEST_RECORD = 64 << 10
_MOST_TOLD = 50
_VERSION = 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[\w .,:()/+-]{1,100}", re.ASCII)


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
