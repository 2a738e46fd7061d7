"""Take an added server away: out of sight at once, then file by file. No link is followed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from secrets import token_hex

from sgl_tune.errors import UsageError, WorkFailed

_HIDDEN = ".removed-"
_REMOVED = re.compile(rf"{re.escape(_HIDDEN)}[0-9a-f]{{16}}")


def remove_server(release: str, home: Path) -> None:
    """Under the lock of `home`."""
    folder = home / release
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link, which `server add` makes none of", "remove the link yourself")
    if not folder.is_dir():
        raise UsageError(
            f"SGLang {release} is not among the added servers", "`sgl-tune server list` shows them"
        )
    hidden = home / f"{_HIDDEN}{token_hex(8)}"
    folder.rename(hidden)
    sweep(home)


def sweep(home: Path) -> None:
    """What earlier removals, killed midway, have left. Under the lock of `home`."""
    with os.scandir(home) as entries:
        left = [Path(entry.path) for entry in entries if _REMOVED.fullmatch(entry.name)]
    for folder in left:
        if folder.is_symlink():
            folder.unlink()
            continue
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise WorkFailed(
                f"{error.filename}: cannot be removed: {error.strerror}", f"remove {folder}"
            ) from error
