"""Whether the files of a bundle lie in the root as they were staged and checked."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Folder, Signature, Way, signature_of
from sgl_tune.cache.layouts import MANIFEST
from sgl_tune.errors import WorkFailed
from sgl_tune.ship.places import OFFERS, store_of
from sgl_tune.stores.find import TACTICS

_PIECE = 1 << 20


class Checked(NamedTuple):
    """A staged file: its content's sha256, and how it looked when it was written."""

    sha256: str
    signature: Signature


def check_landed(files: Mapping[str, Checked], root: Path) -> None:
    """Raise WorkFailed where a file is not there as it was checked. Tactics that were there are merged, and a
    server may already add to them, so of those any regular file will do."""
    with Way() as way:
        wrong = [path for path, checked in sorted(files.items()) if not _landed(path, checked, root, way)]
    if wrong:
        raise WorkFailed(
            f"{root}: {len(wrong):,} of the bundle's {len(files):,} files did not land as they were checked,"
            f" {wrong[0]} among them",
            "somebody else removes or writes files there: end that, and unpack again",
        )


def _landed(path: str, checked: Checked, root: Path, way: Way) -> bool:
    name = path.rpartition("/")[2]
    is_tactic = store_of(path) == TACTICS
    if path in OFFERS or (is_tactic and name == MANIFEST):  # written here, or not at all
        return True
    try:
        folder = way.to((root / path).parent, root)
        status = folder.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return False
        return (
            is_tactic or signature_of(status) == checked.signature or _digest(folder, name) == checked.sha256
        )
    except OSError:
        return False


def _digest(folder: Folder, name: str) -> str:
    found = sha256()
    file = folder.open(name, os.O_RDONLY)
    try:
        while piece := os.read(file, _PIECE):
            found.update(piece)
    finally:
        os.close(file)
    return found.hexdigest()
