"""Whether what was built is whole, and whether ninja would build it again. A compiled file's header shows
its GPU, and whether the file is complete."""

import os
import re
import struct
from pathlib import Path

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Fault
from sgl_tune.units import shown

_BUILD = re.compile(r"^build ((?:[^:$\n]|\$.)+): (\w+) (.*)$", re.MULTILINE)
_DEPS_MAGIC = b"# ninjadeps\n"
_DEPS_VERSIONS = (3, 4)
_MOST_DEPS = 1 << 20
_MOST_INPUTS = 50_000
AGAIN = "it is compiled again, unless a package offers it"
_Recorded = tuple[int, list[str]]  # an output's time, and the headers that it was made of
_CUDA_MACHINE = 190
_HEAD = 64
_NOATIME: int = getattr(os, "O_NOATIME", 0)
_MAGIC = b"\x7fELF"


class Freshness:
    """Predicts whether ninja would rebuild anything in a folder that FlashInfer or tvm-ffi built with it, by
    file times. Ninja rebuilds an output if its command differs from the log's, if an input is newer than the
    log's entry or the output, or if the recorded dependencies are older than the output. The command is not
    hashed here: it can only differ if the folder's path or the machine's compiler does. Each header's time is
    read once, because modules share most headers."""

    def __init__(self) -> None:
        self._times: dict[str, int | None] = {}

    def objection(self, folder: Folder, place: str, is_here: bool) -> Fault | None:
        """Return why ninja would rebuild a folder that is seen at `place`. Files outside it are checked
        only if `is_here`."""
        text = _text(folder, "build.ninja")
        if text is None:
            return Fault("stale", f"build.ninja cannot be read: {AGAIN}")
        edges = [(match[1], match[3].split()) for match in _BUILD.finditer(text)]
        outside = next((output for output, _ in edges if not _is_below(output, place)), None)
        if outside:
            where = shown(outside.rpartition("/")[0], 200)
            return Fault("moved", f"it was built in {where}: {AGAIN}")
        log = _log(_text(folder, ".ninja_log") or "")
        deps = _deps(folder)
        for output, words in edges:
            inputs = [word for word in words if word not in ("|", "||")]
            why = self._edge(folder, inputs, place, is_here, log.get(output), deps.get(output), _name(output))
            if why:
                return Fault("stale", f"{why}: {AGAIN}")
        return None

    def _edge(
        self, folder: Folder, inputs: list[str], place: str, is_here: bool,
        logged: int | None, recorded: _Recorded | None, name: str,
    ) -> str | None:  # fmt: skip
        """Return why ninja would build the output `name` again. `logged`, `recorded`: what its log and its
        list of dependencies have of the output."""
        status = folder.status(name)
        if status is None:
            return f"{name} is missing"
        if logged is None:
            return f"ninja's log does not know {name}"
        if any(not _is_below(one, place) for one in inputs):  # an object, not the linked library
            if recorded is None:
                return f"ninja's dependencies of {name} are lost"
            if recorded[0] < status.st_mtime_ns:
                return f"{name} is newer than what ninja recorded of it"
            inputs += recorded[1]
        if len(inputs) > _MOST_INPUTS:
            return f"{name} has {len(inputs):,} dependencies, which no build has"
        built = min(logged, status.st_mtime_ns)
        for one in inputs:
            changed = self._time(folder, one, place, is_here)
            if changed is None:
                return f"{_name(one)}, which {name} was made of, is gone"
            if changed > built:
                return f"{_name(one)} is newer than {name}"
        return None

    def _time(self, folder: Folder, path: str, place: str, is_here: bool) -> int | None:
        if _is_below(path, place):
            status = folder.status(_name(path))
            return status.st_mtime_ns if status else None
        if not is_here:
            return 0
        if path not in self._times:
            try:
                self._times[path] = Path(path).stat().st_mtime_ns
            except (OSError, ValueError):
                self._times[path] = None
        return self._times[path]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_below(path: str, place: str) -> bool:
    return path.rpartition("/")[0] == place


def _text(folder: Folder, name: str) -> str | None:
    try:
        raw = folder.read(name)[1]
    except OSError:
        return None
    return raw.decode(errors="replace") if raw is not None else None


def _log(text: str) -> dict[str, int]:
    """Return the newest input time of each output when it was built. The last entry of a name counts."""
    found = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 5 and parts[2].isdecimal() and len(parts[2]) < 20:
            found[parts[3]] = int(parts[2])
    return found


def _deps(folder: Folder) -> dict[str, _Recorded]:
    try:
        raw = folder.read(".ninja_deps")[1]
    except OSError:
        return {}
    if raw is None or not raw.startswith(_DEPS_MAGIC) or len(raw) < len(_DEPS_MAGIC) + 4:
        return {}
    version = struct.unpack_from("<i", raw, len(_DEPS_MAGIC))[0]
    return _records(raw, len(_DEPS_MAGIC) + 4, version) if version in _DEPS_VERSIONS else {}


def _records(raw: bytes, at: int, version: int) -> dict[str, _Recorded]:
    """Return the records up to the first that is cut off, as ninja itself reads a damaged log."""
    paths: list[str] = []
    found: dict[str, _Recorded] = {}
    head = 12 if version == 4 else 8
    while at + 4 <= len(raw):
        word = struct.unpack_from("<I", raw, at)[0]
        size, at = word & 0x7FFFFFFF, at + 4
        if size % 4 or at + size > len(raw) or len(paths) > _MOST_DEPS:
            break
        if word >> 31:
            if size < head:
                break
            out = struct.unpack_from("<I", raw, at)[0]
            time = int.from_bytes(raw[at + 4 : at + head], "little")
            ids = struct.unpack_from(f"<{(size - head) // 4}I", raw, at + head)
            if max((out, *ids)) >= len(paths):
                break
            found[paths[out]] = (time, [paths[one] for one in ids])
        else:
            paths.append(raw[at : at + size - 4].rstrip(b"\0").decode(errors="replace"))
        at += size
    return found


def _head(folder: Folder, name: str) -> bytes:
    """Return the header, or nothing if it is no 64-bit file."""
    try:
        with open(name, "rb", buffering=0, opener=lambda *_: _opened(folder, name)) as file:
            head: bytes = file.read(_HEAD) or b""
    except OSError:
        return b""
    return head if len(head) == _HEAD and head[:4] == _MAGIC and head[4] == 2 else b""


def _opened(folder: Folder, name: str) -> int:
    """Open a file without changing its access time, if this user is its owner."""
    try:
        return folder.open(name, os.O_RDONLY | _NOATIME)
    except PermissionError:
        return folder.open(name, os.O_RDONLY)


def arch_of(folder: Folder, name: str) -> str | None:
    """Return a cubin's architecture, or None."""
    head = _head(folder, name)
    if not head or struct.unpack_from("<H", head, 18)[0] != _CUDA_MACHINE:
        return None
    flags: int = struct.unpack_from("<I", head, 48)[0]
    number = (flags >> 8) & 0xFFFF if head[8] >= 8 else flags & 0xFF
    return f"sm{number}" if 30 <= number < 1000 else None


def is_whole(folder: Folder, name: str, size: int) -> bool:
    """Whether a library contains its last section. A file that a killed linker left lacks it."""
    head = _head(folder, name)
    if not head:
        return False
    sections: int = struct.unpack_from("<Q", head, 40)[0]
    each, many = struct.unpack_from("<HH", head, 58)
    return sections + each * many <= size
