"""Keep the records of starts, by a digest of everything they depend on, and Triton's compiled kernels."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runtime.record.record import NotARecord, Record
from sgl_tune.reading import bounded_bytes
from sgl_tune.writing import write_text

MOST_BYTES = 2 << 30
RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
_SOURCES = ("ghost", "folding", "flashinfer", "moe_configs", "sglang", "record")
_LARGEST = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class Kept:
    """A private folder of records, and the folder where starts keep Triton's kernels. If both together are
    too large, the least recently used files are removed. A kernel counts as used when it was compiled."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, kernels: Path | None = None) -> None:
        self._folder, self._most, self._kernels = folder, most_bytes, kernels

    def find(self, digest: str) -> Record | None:
        file = self._folder / f"{digest}.json"
        try:
            record = Record.from_json(bounded_bytes(file, _LARGEST))
        except (OSError, NotARecord, ValueError):
            return None
        with suppress(OSError):  # a read-only home does not prevent answers
            os.utime(file)
        return record

    def keep(self, digest: str, record: Record) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        write_text(self._folder / f"{digest}.json", record.to_json())
        self.forget(self._most)

    def files(self) -> list[Path]:
        """Return the files, the most recently used first."""
        found = []
        for file in (*self._folder.glob("*.json"), *self._kernel_files()):
            with suppress(OSError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime, file))
        return [file for _, file in sorted(found, reverse=True)]

    def is_kernel(self, file: Path) -> bool:
        return self._kernels is not None and self._kernels in file.parents

    def _kernel_files(self) -> Iterator[Path]:
        """Yield the kept kernels. Links are not followed, because no start makes any."""
        if self._kernels is not None:
            for folder in self._kernels.glob("*"):
                if folder.is_dir() and not folder.is_symlink():
                    yield from folder.glob("*")

    def forget(self, most_bytes: int) -> None:
        """Remove the least recently used files until the rest take no more than this."""
        for file in self.beyond(most_bytes):
            file.unlink(missing_ok=True)

    def beyond(self, most_bytes: int) -> dict[Path, int]:
        """Return the least recently used files beyond `most_bytes`, with the size of each."""
        total, found = 0, {}
        for file in self.files():
            with suppress(FileNotFoundError):
                size = file.lstat().st_size
                total += size
                if total > most_bytes:
                    found[file] = size
        return found


def digest_of(parts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of_files(files: Mapping[str, Path]) -> str:
    """Return a digest of names and contents. Of weights only the size counts: a start fills them with
    random numbers."""
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        is_weight = file.suffix in _WEIGHTS
        inner = str(file.stat().st_size).encode() if is_weight else _bytes(file)
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + inner + b"\n")
    return digest.hexdigest()


def data_files(places: Sequence[Path]) -> dict[str, Path]:
    """Return the files that a command names, and the files in the folders that it names."""
    found: dict[str, Path] = {}
    for place in dict.fromkeys(places):
        inside = sorted(place.iterdir()) if place.is_dir() else [place]
        found |= {f"{place.name}/{file.name}": file for file in inside if file.is_file()}
    return found


def own_source(runtime: Path = RUNTIME) -> dict[str, Path]:
    """Return the files that decide what the ghost answers, including its tables."""
    files = (file for room in _SOURCES for file in (runtime / room).rglob("*") if file.is_file())
    return {str(file.relative_to(runtime)): file for file in files if "__pycache__" not in file.parts}


def _bytes(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.digest()


def kept_here() -> Kept:
    """Return the records and kernels that earlier questions left on this machine."""
    return Kept(cache_folder() / "records", kernels=cache_folder() / "kernels")


def cache_folder() -> Path:
    """Return the folder for everything that sgl-tune can make again."""
    named = os.environ.get("XDG_CACHE_HOME")
    above = Path(named) if named and Path(named).is_absolute() else Path.home() / ".cache"
    return above / "sgl-tune"
