"""Find what a warm tunes, from the records of a server's start: caches, their files, and the calls that
fill them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from runtime.record.calls import Call
from runtime.record.record import Record
from sgl_tune.cache.asked import CachePlan, ExpectedEntry, TunedOp
from sgl_tune.cache.rank_names import RankName
from sgl_tune.units import count

LOOKED_FOR, NAMED = "flashinfer tactics", "flashinfer tactics of the ranks"
OWN = "flashinfer tactics of this rank"
STORES = (NAMED, LOOKED_FOR)
_DRAFT = "draft "
_PARTS = 6  # flashinfer/autotune/VERSION/ARCH/KEY/FILE
_TUNING = "autotune"

_MOST_LINES = 6


@dataclass(frozen=True)
class RecordedCache(CachePlan):
    """A cache of a recorded start. `ops`: those that a warm can fill, with calls that can be repeated."""

    calls: tuple[Call, ...] = ()

    @property
    def replayable(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if not call.unreplayable)

    @property
    def left(self) -> tuple[Call, ...]:
        """Return the calls that a warm cannot repeat; the server's own start tunes their entries."""
        return tuple(call for call in self.calls if call.unreplayable)

    @property
    def all_ops(self) -> tuple[TunedOp, ...]:
        """Return all ops that the server looks up."""
        return tuple(_ops(self.calls))

    def to_json(self) -> dict[str, Any]:
        left = [{"function": call.function, "why": call.unreplayable} for call in self.left]
        return {**super().to_json(), "not_replayable": left}


def _ops(calls: Iterable[Call]) -> Iterator[TunedOp]:
    keys: dict[tuple[str, str, tuple[Any, ...]], dict[str, int]] = {}
    tuned: set[str] = set()
    for call in calls:
        for lookup in call.lookups:
            found = keys.setdefault((lookup.op, lookup.runners[0], lookup.policy), {})
            found |= {key: bucket for bucket, key in lookup.keys}
            tuned |= {key for _, key in lookup.keys} if call.mode == "tune" else set()
    for (op, runner, policy), found in keys.items():
        entries = (
            ExpectedEntry(key, bucket, "tuning" if key in tuned else "serving")
            for key, bucket in found.items()
        )
        yield TunedOp(op, runner, policy, tuple(entries))


def caches_of(records: Sequence[Record]) -> tuple[RecordedCache, ...]:
    """Return the target's cache and the draft's. SGLang itself names the files of all ranks. Each file
    gets the entries of all ranks, because additional entries do no harm."""
    found = [_cache(records, is_draft) for is_draft in (False, True)]
    return tuple(cache for cache in found if cache is not None)


def files_of(records: Sequence[Record], is_draft: bool) -> tuple[str, ...]:
    """Return a server's rank files below its cache directory, as SGLang names them."""
    return tuple(_names(records, is_draft))


def unplaced(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield what the starts tune and no plan has all files of, with the reason."""
    for is_draft in (False, True):
        if not any(call.mode == "tune" for call in _calls(records, is_draft)):
            continue
        names, what = _names(records, is_draft), "the files of the draft" if is_draft else "the files"
        if not names:
            yield what, "SGLang named none that a later start reads"
        elif len(_folders(names)) > 1:
            yield what, f"SGLang named {len(_folders(names))} folders, one of them for some ranks"
        elif not any(True for one in records for _ in _files(one, is_draft, NAMED)):
            yield what, "SGLang named those of the started ranks, and did not answer for the others"


def _names(records: Sequence[Record], is_draft: bool) -> list[str]:
    told = [dict.fromkeys(n for one in records for n in _files(one, is_draft, store)) for store in STORES]
    return list(next(filter(None, told), {}))


def _folders(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(str(PurePosixPath(name).parent) for name in names))


def _calls(records: Sequence[Record], is_draft: bool) -> list[Call]:
    """Return the calls, each once."""
    told = [call for one in records for call in one.calls if _is_drafts(call, one) == is_draft]
    return list({(call.mode, call.function, call.keys): call for call in told}.values())


def _cache(records: Sequence[Record], is_draft: bool) -> RecordedCache | None:
    names, calls = _names(records, is_draft), _calls(records, is_draft)
    folders = _folders(names)
    if not calls or len(folders) != 1:
        return None
    stages: dict[tuple[int, int], list[str]] = {}
    has_replicas = any(record.arguments.get("enable_dp_attention") is not True for record in records)
    for name in names:
        rank = RankName.parse(PurePosixPath(name).name)
        stage = (rank.pp, rank.dp if has_replicas else 0) if rank else (0, 0)
        stages.setdefault(stage, []).append(name)
    groups = tuple(tuple(group) for _, group in sorted(stages.items()))
    ops = tuple(_ops(call for call in calls if not call.unreplayable))
    return RecordedCache(folders[0], groups, ops, calls=tuple(calls))


def _is_drafts(call: Call, record: Record) -> bool:
    """Whether a call is the draft's: by the file that was open, or, of a call while serving, by its step."""
    own = (file.phase for file in record.files if file.store == OWN and file.path == call.cache)
    return next(own, call.phase).startswith(_DRAFT)


def _files(record: Record, is_draft: bool, store: str) -> Iterator[str]:
    """Yield the files below the cache directory as SGLang named them. Other paths in a record are dropped."""
    for file in record.files:
        if file.store == store and file.phase.startswith(_DRAFT) == is_draft:
            parts = PurePosixPath(file.path).parts
            is_below = parts[-_PARTS : -_PARTS + 2] == ("flashinfer", "autotune") and ".." not in parts
            if len(parts) >= _PARTS and is_below and file.path.endswith(".json"):
                yield str(PurePosixPath(*parts[-_PARTS:]))


@dataclass(frozen=True, slots=True)
class Reading:
    """What one rank read. `files`: by name, whether the start loaded it; None: no such file. `asked`: the
    number of lookups. `profiled`: lookups for which it measured a bucket. `said`: its own lines about
    that."""

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
        files = [{"path": path, "taken": taken} for path, taken in self.files.items()]
        return {**asdict(self), "files": files}


def readings_of(records: Sequence[Record], given: Collection[str]) -> tuple[Reading, ...]:
    """Return what each rank read. `given`: the files that the starts were given."""
    readings = []
    for record in records:
        tuned = {one.key: one.profiled for one in record.keys if one.mode == "tune" or one.profiled}
        profiled = tuple(key for key, times in tuned.items() if times)
        files = list(_opened(record))
        taken = {typed: found if typed in given else None for _, typed, found in files}
        readings.append(Reading(record.asked.rank, taken, len(tuned), profiled, _said(record, files)))
    return tuple(readings)


def _opened(record: Record) -> Iterator[tuple[str, str, bool]]:
    """Yield this rank's file, by the typed model's name, and whether it was loaded; then the draft's, if a
    draft tunes."""
    for is_draft in (False, True):
        owned = (file for file in record.files if file.store == OWN)
        own = next((file.path for file in owned if file.phase.startswith(_DRAFT) == is_draft), None)
        looked = {file.path: file.found for file in record.files if file.store == LOOKED_FOR}
        if own is None or own not in looked:
            continue
        name = PurePosixPath(own).name
        typed = next((one for one in files_of([record], is_draft) if PurePosixPath(one).name == name), own)
        yield own, typed, looked[own]


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
