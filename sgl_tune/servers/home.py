"""The folder of the servers that `sgl-tune server add` made, one folder per release. A server is complete
and may be used when its folder holds `server.json`, which is written last."""

import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.locks import take_lock
from sgl_tune.reading import NoObject, bounded_bytes, object_of

VARIABLE = "SGL_TUNE_SERVERS"
MARK = "server.json"
RELEASE = re.compile(r"\d+(?:\.\d+){1,3}(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?")
_NOT_WHOLE = "not finished; `sgl-tune server add {}` goes on with it"
_NAME = ".lock"
_LONGEST = 200
_HIDDEN = ".removed-"
_REMOVED = re.compile(rf"{re.escape(_HIDDEN)}[0-9a-f]{{16}}")


@dataclass(frozen=True, slots=True)
class Added:
    """An added server. `unusable`: why it must not be used, in one line; None if it may."""

    release: str
    folder: Path
    unusable: str | None
    mark: Mapping[str, Any]

    @property
    def venv(self) -> Path:
        return self.folder / "venv"


def servers_home() -> Path:
    """Return $SGL_TUNE_SERVERS, else sgl-tune/servers in the user's data folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME")
    above = Path(data) if data and Path(data).is_absolute() else Path("~/.local/share").expanduser()
    return above.absolute() / "sgl-tune/servers"


def check_release(text: str) -> str:
    if not RELEASE.fullmatch(text):
        raise UsageError(f"{text!r} is no release of SGLang", "write it like 0.5.23 or 0.5.12.post1")
    return text


def added_servers() -> list[Added]:
    """Return the added servers, newest release first, even if they are incomplete or unsafe to use."""
    home = servers_home()
    try:
        with os.scandir(home) as entries:
            names = [entry.name for entry in entries if RELEASE.fullmatch(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"{home}: {error.strerror}", "make it readable, or set SGL_TUNE_SERVERS") from error
    return [added_server(name, home) for name in sorted(names, key=release_order, reverse=True)]


def added_server(release: str, home: Path) -> Added:
    folder = home / release
    unsafe = next((why for part in (home, folder, folder / "venv") if (why := why_not_ours(part))), None)
    if unsafe:
        return Added(release, folder, unsafe, {})
    try:
        mark = object_of(bounded_bytes(folder / MARK, 1 << 20))
    except FileNotFoundError:
        return Added(release, folder, _NOT_WHOLE.format(release), {})
    except (OSError, NoObject) as error:
        return Added(release, folder, f"{folder / MARK} cannot be read: {error}", {})
    return Added(release, folder, None, mark)


def release_order(release: str) -> tuple[tuple[int, ...], int, int, int, int]:
    """Return a sort key in PEP 440's order: 0.5.23.dev1, 0.5.23rc1, 0.5.23, 0.5.23.post1, 0.5.24."""
    numbers = tuple(map(int, re.match(r"[\d.]*\d", release)[0].split(".")))  # type: ignore[index]
    before, after, dev = (re.search(rf"{word}(\d+)", release) for word in ("(?:a|b|rc)", "post", "dev"))
    return (
        numbers,
        0 if dev and not before and not after else 1 if before else 2,
        int(before[1]) if before else 0,
        int(after[1]) + 1 if after else 0,
        int(dev[1]) if dev else 1 << 30,
    )


def why_not_ours(path: Path) -> str | None:
    """Return why another user could have written into a folder, or None if only this user or root can."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path}: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link, and none is followed there"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is no folder"
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user"
    if status.st_mode & 0o022:
        return f"{path} can be written by other users"
    return None


@contextmanager
def locked(home: Path) -> Iterator[int]:
    """Hold the lock of the servers' folder and yield its descriptor. The folder is created if needed, and
    refused if it is not this user's."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        unsafe = why_not_ours(home)
        if unsafe:
            raise UsageError(
                f"servers are not kept there: {unsafe}", f"set {VARIABLE} to a folder of your own"
            )
        held = os.open(home / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        why = f"{error.filename or home}: servers cannot be kept there: {error.strerror}"
        raise UsageError(why, f"set {VARIABLE} to a folder that this user may write in") from error
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode) or os.fstat(held).st_nlink != 1:
            raise UsageError(f"{home / _NAME} is no regular file, or has a hard link", "remove it")
        if take_lock(held) is False:
            who = os.pread(held, _LONGEST, 0).decode(errors="replace").strip() or "another process"
            raise WorkFailed(f"{home}: in use by {who}", "wait until it has finished, or end it")
        with suppress(OSError):  # on a full disk, those that wait see no name
            os.ftruncate(held, 0)
            os.pwrite(held, f"process {os.getpid()} on {socket.gethostname()}".encode(errors="replace"), 0)
        yield held
    finally:
        os.close(held)


def remove_server(release: str, home: Path) -> None:
    """Remove an added server. The caller holds the lock of `home`."""
    folder = home / release
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link, and `server add` makes no links", "remove the link yourself")
    if not folder.is_dir():
        raise UsageError(
            f"SGLang {release} is not among the added servers", "`sgl-tune server list` shows them"
        )
    hidden = home / f"{_HIDDEN}{token_hex(8)}"
    folder.rename(hidden)
    sweep(home)


def sweep(home: Path) -> None:
    """Remove what killed removals have left. The caller holds the lock of `home`."""
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
