"""What a local checkpoint's tensors take: its safetensors' headers are read, never the weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError
from sgl_tune.memory.report import Comparison, MemoryReport, Row
from sgl_tune.reading import open_regular, read_object
from sgl_tune.units import count, memory_bytes

_INDEX = "model.safetensors.index.json"
_LARGEST_FILE = 1 << 44
_LARGEST_HEADER = 100_000_000  # as safetensors itself allows
_LAYER = re.compile(r"\blayers\.(\d{1,5})\.")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Bytes by tensor."""

    files: int
    tensors: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.tensors.values())

    def beyond(self, layers: int) -> int:
        """Of layers behind the model's: a draft's, which the server itself does not load."""
        found = ((_LAYER.search(name), size) for name, size in self.tensors.items())
        return sum(size for layer, size in found if layer and int(layer[1]) >= layers)


def weight_files(folder: Path) -> WeightFiles | None:
    """None where the folder has no safetensors."""
    index = folder / _INDEX
    if index.is_file():
        listed = read_object(index, "it lists the files of a checkpoint").get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
            raise UsageError(f"{index} has no weight_map of file names")
        files = sorted({folder / Path(name).name for name in listed.values()})
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files or not all(file.exists() for file in files):
        return None
    return WeightFiles(len(files), {name: size for file in files for name, size in _tensors(file)})


def _tensors(path: Path) -> Iterator[tuple[str, int]]:
    for name, told in _header(path).items():
        if name == "__metadata__":
            continue
        try:
            first, last = told["data_offsets"]
            size = int(last) - int(first)
        except (TypeError, KeyError, ValueError) as error:
            raise UsageError(f"{path}: tensor {name[:80]!r} has no data_offsets of two numbers") from error
        if size < 0:
            raise UsageError(f"{path}: tensor {name[:80]!r} ends before it begins")
        yield name, size


def _header(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path, _LARGEST_FILE) as file:
            length = int.from_bytes(file.read(8), "little")
            raw = file.read(length) if length <= _LARGEST_HEADER else b""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is no safetensors file: its first bytes are no header")
    return header


def beside_files(report: MemoryReport, found: WeightFiles, layers: int, ranks: int) -> MemoryReport:
    """The files' bytes in a note; on one rank, which loads all of them, beside the predicted weights."""
    drafts = found.beyond(layers)
    behind = f", {memory_bytes(drafts)} of them behind its {layers} layers" if drafts else ""
    what = f"{count(len(found.tensors), 'tensor')} in {count(found.files, 'file')}"
    note = f"the checkpoint holds {found.bytes:,} bytes of weights: {what}{behind}"
    report = report.with_note(note)
    weights = report.phase("weights")
    if ranks > 1 or weights is None:
        return report
    row = Row("weights", weights.persistent_bytes, found.bytes - drafts)
    told = Comparison("Weights predicted, and in the checkpoint's files", "files", (row,))
    return replace(report, comparisons=(*report.comparisons, told))
