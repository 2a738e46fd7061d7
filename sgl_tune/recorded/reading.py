"""What the starts of a server's ranks did with their files of tactics, from their records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from runtime.record.record import Record
from sgl_tune.recorded.caches import LOOKED_FOR, OWN, files_of
from sgl_tune.units import count

_TUNING = "autotune"
_DRAFT = "draft "
_MOST_LINES = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """`files`: by their names below the cache directory, whether the start took each; None where there was
    none. `asked`: its questions to the tuner, each by the key of its own rows. `profiled`: those for which it
    measured some bucket. `said`: its own lines about that."""

    rank: int
    files: Mapping[str, bool | None]
    asked: int
    profiled: tuple[str, ...]
    said: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.profiled and all(self.files.values())

    @property
    def says(self) -> str:
        taken = sum(bool(one) for one in self.files.values())
        measured = f"measured for {len(self.profiled)} of {self.asked} questions to the tuner"
        return f"rank {self.rank} took {taken} of {count(len(self.files), 'file')} and {measured}"

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "files": [{"path": path, "taken": taken} for path, taken in self.files.items()],
            "asked": self.asked,
            "profiled": list(self.profiled),
            "said": list(self.said),
        }


def readings_of(records: Sequence[Record], given: Collection[str]) -> tuple[Reading, ...]:
    """`given`: the files that the starts were handed."""
    return tuple(_reading(record, given) for record in records)


def _reading(record: Record, given: Collection[str]) -> Reading:
    tuned = {one.key: one.profiled for one in record.keys if one.mode == "tune" or one.profiled}
    profiled = tuple(key for key, times in tuned.items() if times)
    files = list(_files(record))
    taken = {typed: found if typed in given else None for _, typed, found in files}
    return Reading(record.asked.rank, taken, len(tuned), profiled, _said(record, files))


def _files(record: Record) -> Iterator[tuple[str, str, bool]]:
    """The file that this rank opens, as the server of the typed model names it, and whether it was taken; and
    its draft's, where a draft tunes."""
    for is_draft in (False, True):
        own = next((file.path for file in record.files if _is_own(file.store, file.phase, is_draft)), None)
        looked = {file.path: file.found for file in record.files if file.store == LOOKED_FOR}
        if own is None or own not in looked:
            continue
        name = PurePosixPath(own).name
        typed = next((one for one in files_of([record], is_draft) if PurePosixPath(one).name == name), own)
        yield own, typed, looked[own]


def _is_own(store: str, phase: str, is_draft: bool) -> bool:
    return store == OWN and phase.startswith(_DRAFT) == is_draft


def _said(record: Record, files: Sequence[tuple[str, str, bool]]) -> tuple[str, ...]:
    found = []
    for one in record.said:
        is_about_files = "utotune" in one.text and ("config" in one.text or "cache" in one.text.lower())
        if one.phase.endswith(_TUNING) and is_about_files:
            text = one.text.strip()
            for own, typed, _ in files:
                text = text.replace(own, typed)
            found.append(text)
    return tuple(dict.fromkeys(found))[:_MOST_LINES]
