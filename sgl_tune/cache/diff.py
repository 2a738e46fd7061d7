"""Compare two caches, or two files, entry by entry."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import GENERATION, RECORDS
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.scan import Content, ScannedCache
from sgl_tune.errors import CheckFailed, UsageError

# Two searches of a shape may order equally fast choices differently: their times differ by this much.
NOISE = 0.01

Races = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Side:
    """One table of tuned choices: a rank's file, or the common content of all ranks. `races`: times that
    its search measured of choices side by side."""

    name: str
    entries: Mapping[str, Any]
    environment: Mapping[str, Any]
    others: Mapping[str, Any]
    races: Races = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A changed entry. `apart`: how much slower the slower choice is, if a search had both in one race."""

    key: str
    before: Any
    after: Any
    apart: float | None = None

    @property
    def is_noise(self) -> bool | None:
        return None if self.apart is None else self.apart <= NOISE


@dataclass(frozen=True, slots=True)
class Difference:
    """Two tables compared. `environment`, `others` (checksum, records): what else a server compares."""

    a: Side
    b: Side
    same: int
    changed: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    environment: tuple[Change, ...]
    others: tuple[Change, ...]

    @property
    def is_equal(self) -> bool:
        return not (self.changed or self.only_a or self.only_b or self.environment or self.others)

    @property
    def is_noise(self) -> bool:
        """Whether all differences, if any, are between choices that are equally fast."""
        others = self.only_a or self.only_b or self.environment or self.others
        return not others and all(change.is_noise for change in self.changed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs of tables, and the ranks that only one side has."""

    pairs: tuple[Difference, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not (self.only_a or self.only_b) and all(pair.is_equal for pair in self.pairs)

    @property
    def is_noise(self) -> bool:
        return not (self.only_a or self.only_b) and all(pair.is_noise for pair in self.pairs)


def compare(a: Sequence[ScannedCache], b: Sequence[ScannedCache]) -> Comparison:
    """Compare one cache with another, whatever their keys, or several caches by their place on the disk."""
    if len(a) == len(b) == 1:
        return _compare_caches(a[0], b[0])
    left, right = ({_place(cache): cache for cache in caches} for caches in (a, b))
    parts = [_compare_caches(left[place], right[place]) for place in left if place in right]
    lonely_a = [str(left[place].cache.path) for place in left if place not in right]
    lonely_b = [str(right[place].cache.path) for place in right if place not in left]
    return Comparison(
        tuple(pair for part in parts for pair in part.pairs),
        (*(name for part in parts for name in part.only_a), *lonely_a),
        (*(name for part in parts for name in part.only_b), *lonely_b),
    )


def _place(cache: ScannedCache) -> tuple[str | None, ...]:
    place = cache.cache
    return (place.layout, place.flashinfer, place.arch, place.key)


def _compare_caches(a: ScannedCache, b: ScannedCache) -> Comparison:
    """Compare two caches as one table each if their ranks agree, else rank by rank."""
    left, right = _whole(a), _whole(b)
    if left and right:
        return Comparison((_difference(left, right),))
    ranks_a, ranks_b = _by_rank(a), _by_rank(b)
    return Comparison(
        tuple(_difference(ranks_a[rank], ranks_b[rank]) for rank in ranks_a if rank in ranks_b),
        tuple(ranks_a[rank].name for rank in ranks_a if rank not in ranks_b),
        tuple(ranks_b[rank].name for rank in ranks_b if rank not in ranks_a),
    )


def _whole(cache: ScannedCache) -> Side | None:
    if cache.cache.layout == "flashinfer-v2":
        entries = {entry.key: entry.value for content in cache.contents for entry in content.read_entries()}
        return Side(str(cache.cache.path), entries, cache.environment or {}, {})
    if len(cache.contents) != 1:
        return None
    file = cache.files[0]
    name = str(file.path if len(cache.files) == 1 else cache.cache.path)
    return _side(file.path, file.content, name, _races_of(cache))


def _by_rank(cache: ScannedCache) -> dict[RankName | str, Side]:
    return {
        file.rank or file.path.name: _side(file.path, file.content, str(file.path), _races_of(cache))
        for file in cache.files
    }


def _races_of(cache: ScannedCache) -> Races:
    return cache.manifest.races if cache.manifest else {}


def _side(path: Path, content: Content, name: str, races: Races) -> Side:
    if content.problem:
        raise CheckFailed(f"{path}: cannot be compared, {content.problem}", "`sgl-tune verify` says more")
    file = content.read_file(path)
    others = {member: file.document[member] for member in (RECORDS, GENERATION) if member in file.document}
    return Side(name, file.entries, content.environment or {}, others, races)


def _difference(a: Side, b: Side) -> Difference:
    shared = [key for key in a.entries if key in b.entries]
    changed = tuple(
        Change(key, a.entries[key], b.entries[key], _apart(key, a, b))
        for key in shared
        if a.entries[key] != b.entries[key]
    )
    only_a = tuple(key for key in a.entries if key not in b.entries)
    only_b = tuple(key for key in b.entries if key not in a.entries)
    environment = _changes(a.environment, b.environment)
    others = _changes(a.others, b.others)
    if changed or only_a or only_b or environment or len(others) > 1:
        # The checksum follows from the rest, so it is shown only if nothing else differs.
        others = tuple(change for change in others if change.key != GENERATION)
    return Difference(a, b, len(shared) - len(changed), changed, only_a, only_b, environment, others)


def _apart(key: str, a: Side, b: Side) -> float | None:
    """Return the larger difference of both searches: what is slow in one of them is no noise."""
    one, other = _choice(a.entries[key]), _choice(b.entries[key])
    if one is None or other is None:
        return None
    if one == other:  # the same choice, measured again or under another policy
        return 0.0 if a.entries[key][2:3] == b.entries[key][2:3] else None
    races = [side.races.get(key, {}) for side in (a, b)]
    return max((abs(race[one] - race[other]) for race in races if race.keys() >= {one, other}), default=None)


def _choice(value: Any) -> str | None:
    if not isinstance(value, list) or len(value) < 2:
        return None
    try:
        return json.dumps(value[:2])
    except RecursionError:
        return None


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    names = [*a, *(name for name in b if name not in a)]
    return tuple(Change(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name))


def check_not_empty(caches: Sequence[ScannedCache], target: str) -> None:
    if not any(cache.files for cache in caches):
        raise UsageError(f"{target}: holds no cache files", "`sgl-tune inspect` lists the caches there are")
