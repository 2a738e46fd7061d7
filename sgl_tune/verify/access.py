"""Check whether the server's user can read a cache and write beside it, by modes, owners and groups.
Access control lists and container user mappings are not considered."""

import os
import pwd
import stat
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sgl_tune.errors import UsageError
from sgl_tune.verify.findings import Finding, finding

_READ, _WRITE, _SEARCH = 4, 2, 1
_LARGEST_UID = 2**32 - 2


class User(NamedTuple):
    name: str
    uid: int
    groups: frozenset[int] = frozenset()

    def may(self, status: os.stat_result, bits: int) -> bool:
        if self.uid == 0:
            return True
        if status.st_uid == self.uid:
            granted = status.st_mode >> 6
        elif status.st_gid in self.groups:
            granted = status.st_mode >> 3
        else:
            granted = status.st_mode
        return granted & bits == bits


def find_user(name: str, option: str = "--as-user") -> User:
    """Find a user by name or by number. A container's user need not have a name on this machine."""
    is_number = name.isdecimal() and len(name) <= len(str(_LARGEST_UID)) and int(name) <= _LARGEST_UID
    try:
        entry = pwd.getpwuid(int(name)) if is_number else pwd.getpwnam(name)
    except (KeyError, ValueError):
        if is_number:
            return User(f"uid {int(name)}", int(name), frozenset({int(name)}))
        raise UsageError(f"{option} {name}: no such user here", f"give the number: {option} 1000") from None
    return User(entry.pw_name, entry.pw_uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))


class Access:
    """The access that one user has. Each folder is checked only once."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._blocked = cache(self._blocking_folder)

    def reading(self, path: Path) -> list[Finding]:
        blocked = self._blocked(path.parent)
        if blocked:
            return [_unreachable(self.user, blocked)]
        try:
            status = path.stat()
        except OSError:
            return []  # reading the folder shows more
        if self.user.may(status, _READ):
            return []
        who = f"{self.user.name} cannot read it ({stat.filemode(status.st_mode)}, owner {status.st_uid})"
        message = f"{who}: the server dies with PermissionError"
        return [finding("not-readable", message, f"chmod -R a+rX {path.parent}")]

    def writing(self, folder: Path) -> list[Finding]:
        blocked = self._blocked(folder)
        if blocked:
            return [_unreachable(self.user, blocked)._replace(where=str(folder))]
        try:
            status = folder.stat()
            read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        except OSError:
            return []
        if self.user.may(status, _WRITE | _SEARCH) and not read_only:
            return []
        why = "a read-only file system" if read_only else stat.filemode(status.st_mode)
        return [_not_writable(folder, f"{self.user.name} cannot write there ({why})")]

    def _blocking_folder(self, folder: Path) -> Path | None:
        """Return the first folder on the path that the user may not enter, with links resolved, or None."""
        real = Path(os.path.realpath(folder))
        for step in [*reversed(real.parents), real]:
            try:
                if not self.user.may(step.stat(), _SEARCH):
                    return step
            except PermissionError:
                return step.parent
            except OSError:
                return None
        return None


def _unreachable(user: User, blocked: Path) -> Finding:
    message = f"{user.name} cannot get into {blocked}: the server dies with PermissionError"
    return finding("not-readable", message, f"chmod a+x {blocked}")


def own_writing(folder: Path) -> list[Finding]:
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return []
    return [_not_writable(folder, "you cannot write there")]


def _not_writable(folder: Path, why: str) -> Finding:
    message = f"{why}, and the server saves here after tuning: it dies with PermissionError"
    return finding("not-writable", message, where=folder)
