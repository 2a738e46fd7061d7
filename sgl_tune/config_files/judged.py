"""Judge one file of MoE configurations and the note beside it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sgl_tune.config_files.contents import contents
from sgl_tune.config_files.provenance import digest_of, provenance


class Judged(NamedTuple):
    """A judged file. `kind`: the kind of fault, if any. `versions`, `note`: of a file that sgl-tune tuned."""

    kind: Literal["kills", "stale", ""] = ""
    why: str = ""
    versions: dict[str, str] = {}  # noqa: RUF012  never changed
    note: str = ""


def judged(raw: bytes | None, beside: bytes | None = None) -> Judged:
    if raw is None:
        return Judged("kills", "it is no regular file")
    held = contents(raw)
    if held.kills:
        return Judged("kills", f"a server that looks it up dies: {held.kills}")
    if held.fault:
        return Judged("kills" if held.entries else "stale", held.fault)
    told = provenance(beside or b"")
    if told is None:
        return Judged()
    note = told.says if told.digest == digest_of(raw) else "changed since it was tuned"
    return Judged(versions={"triton": told.triton, "GPU": told.gpu}, note=note)
