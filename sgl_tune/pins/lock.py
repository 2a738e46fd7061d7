"""The lock of a cache directory: the digest of each file that chooses kernels, and their environment."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.record.checked import expect, read
from sgl_tune.config_files.names import BESIDE, FOLDER
from sgl_tune.config_files.provenance import digest_of, provenance
from sgl_tune.errors import UsageError
from sgl_tune.reading import NoObject, object_of, read_bytes, read_object
from sgl_tune.writing import written

NAME, SCHEMA = "sgl-tune.lock", 1
_TACTICS, _CONFIGS = "flashinfer/autotune/", f"moe_configs/{FOLDER}/triton_"
_OURS = "sgl-tune.json"  # measurements beside rank files, which no server reads
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST, _MOST = 64 << 20, 100_000


@dataclass(frozen=True)
class Lock:
    schema_version: int
    environment: dict[str, str]
    files: dict[str, str]

    def __post_init__(self) -> None:
        expect(self.schema_version == SCHEMA, f"of schema_version {SCHEMA}", "lock")
        expect(all(map(_DIGEST.fullmatch, self.files.values())), "of sha256 digests", "lock.files")


def is_pinned(path: str) -> bool:
    """Whether the file with this path in a cache directory chooses a server's kernels."""
    return path.endswith(".json") and path.startswith((_TACTICS, _CONFIGS)) and not path.endswith(_OURS)


def lock_of(root: Path) -> tuple[Lock, list[str]]:
    """Return the lock of a cache directory, and the links and folders in the place of a pinned file, or on
    the way to one. A server follows them, and a lock covers only the directory's own files."""
    files, environment, odd = dict[str, str](), dict[str, str](), list[str]()
    for name, path in _below(root):
        if path.is_symlink() or path.is_dir():
            odd += [name] if is_pinned(name) or (path.is_symlink() and _is_met(name)) else []
        elif is_pinned(name):
            raw = read_bytes(path, most=_LARGEST)
            files[name] = digest_of(raw)
            environment |= _tuned_in(raw) if name.startswith(_TACTICS) else {}
        elif name.startswith(_CONFIGS) and name.endswith(BESIDE):
            told = provenance(read_bytes(path, most=_LARGEST))
            environment |= {"gpu": told.gpu, "triton": told.triton, "sglang": told.sglang} if told else {}
    return Lock(SCHEMA, dict(sorted(environment.items())), dict(sorted(files.items()))), odd


def write_lock(root: Path) -> Path | None:
    """Write the lock, or return None if the directory has no file to pin."""
    lock, _ = lock_of(root)
    if not lock.files:
        return None
    with written(root / NAME) as file:
        file.write((json.dumps(asdict(lock), indent=1) + "\n").encode())
    return root / NAME


def read_lock(path: Path) -> Lock:
    try:
        return read(Lock, read_object(path, "`sgl-tune warm` writes one", _LARGEST), "lock")
    except TypeError as error:
        raise UsageError(f"{path}: {error}", "`sgl-tune warm` writes one") from None


def differences(lock: Lock, found: Mapping[str, str]) -> list[str]:
    """Return a line for each file that is missing, different, or not in the lock."""
    said = [f"{name}: missing" for name in lock.files if name not in found]
    said += [f"{name}: not in the lock" for name in found if name not in lock.files]
    said += [f"{name}: differs" for name, digest in lock.files.items() if found.get(name, digest) != digest]
    return sorted(said)


def _is_met(name: str) -> bool:
    """Whether a server meets this path where it looks for pinned files."""
    place = f"{name}/"
    return any(place.startswith(one) or one.startswith(place) for one in (_TACTICS, _CONFIGS))


def _below(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield all files and folders below a folder, without following links."""
    seen = 0
    for above, folders, names in os.walk(root):
        folders.sort()
        seen += len(names)
        if seen > _MOST:
            raise UsageError(f"{root} has more than {_MOST:,} files", "name the cache directory itself")
        for path in (Path(above, name) for name in (*folders, *sorted(names))):
            yield path.relative_to(root).as_posix(), path


def _tuned_in(raw: bytes) -> dict[str, str]:
    try:
        told: Any = object_of(raw).get("_metadata")
    except NoObject:
        return {}
    return {k: v for k, v in told.items() if isinstance(v, str)} if isinstance(told, dict) else {}
