"""A folder for SGLANG_MOE_CONFIG_DIR. It replaces SGLang's own, so it contains SGLang's files as well."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgl_tune.config_files.contents import LARGEST, as_file
from sgl_tune.config_files.names import BESIDE, FOLDER, beside, triton_folder
from sgl_tune.config_files.provenance import Provenance, digest_of
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_bytes
from sgl_tune.writing import written

VARIABLE = "SGLANG_MOE_CONFIG_DIR"


@dataclass(frozen=True)
class Tuned:
    """One file's entries by batch size, and how each was measured. The digest in `told` is not set yet."""

    name: str
    entries: Mapping[int, Mapping[str, Any]]
    told: Provenance


def write_root(root: Path, source: Path | None, tuned: list[Tuned]) -> list[Path]:
    """Write the server's own files from `source`, then the tuned ones, and return the tuned files' paths."""
    if source is not None and source.resolve() != (root / FOLDER).resolve():
        _copy(source, root / FOLDER)
    return [_write(root / FOLDER / triton_folder(one.told.triton), one) for one in tuned]


def _write(folder: Path, tuned: Tuned) -> Path:
    """Write a file, then the note beside it: without a note, the file counts as not tuned here."""
    _make(folder)
    raw, path = as_file(tuned.entries), folder / tuned.name
    told = replace(tuned.told, digest=digest_of(raw))
    for place, content in ((path, raw), (path.with_name(beside(tuned.name)), told.to_bytes())):
        with written(place) as file:
            file.write(content)
    return path


def _copy(source: Path, root: Path) -> None:
    """Copy the server's files, except where sgl-tune tuned a file of the same name."""
    for file in own_files(source):
        target = root / file.relative_to(source)
        if target.with_name(beside(target.name)).exists():
            continue
        raw = read_bytes(file, "mend the server's package", LARGEST)
        if not target.is_file() or target.read_bytes() != raw:
            _make(target.parent)
            with written(target) as copy:
                copy.write(raw)


def own_files(source: Path) -> Iterator[Path]:
    """Yield the files of SGLang's package, with those in the folder of each Triton."""
    for path in sorted(source.iterdir()):
        inner = sorted(path.iterdir()) if path.is_dir() else [path]
        yield from (one for one in inner if one.is_file() and not one.name.endswith(BESIDE))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", "name another --cache-dir") from error
