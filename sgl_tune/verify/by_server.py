"""What a server's own start did with the rank files here: which it read and loaded, and what it tuned."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from runtime.record.parts import Inexact
from runtime.record.record import Record
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import caches_open
from sgl_tune.errors import CheckFailed
from sgl_tune.recorded.asked import Asked
from sgl_tune.recorded.caches import Reading, RecordedCache, files_of, readings_of
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.units import count
from sgl_tune.verify.compiles import Compiles, compiles
from sgl_tune.verify.entries import entry_name, some
from sgl_tune.verify.environment import UNTOLD as UNTOLD
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import BY_ITSELF, WARM, Checked, Expected
from sgl_tune.verify.findings import Finding, Severity, finding
from sgl_tune.verify.scope import check


@dataclass(frozen=True)
class Served:
    """The answer of a server's own start. `plan`: None if the server does not start; then `ends` says why.
    `compiles`: what it compiles."""

    name: str
    versions: Mapping[str, str]
    plan: RecordedPlan | None
    readings: tuple[Reading, ...]
    checked: tuple[Checked, ...]
    ends: CheckFailed | None = None
    compiles: Compiles | None = None

    @property
    def is_idle(self) -> bool:
        return self.plan is not None and not self.plan.all_caches and not self.plan.unknown

    @property
    def inexact(self) -> tuple[Inexact, ...]:
        return self.plan.inexact if self.plan else ()

    @property
    def says(self) -> str:
        who = f"SGLang {self.versions.get('sglang')} was asked: its own start"
        if self.ends is not None:
            return f"{who} fails"
        compiles = f"; {self.compiles.says}" if self.compiles else ""
        if self.is_idle:
            return f"{who} tunes nothing{compiles}"
        ranks = [str(one.rank) for one in self.readings if one.profiled]
        what = f"would measure tactics (rank {', '.join(ranks)})" if ranks else "measured nothing"
        doubt = f"; not exact: {self.inexact[0].name}" if self.inexact else ""
        more = f" and {count(len(self.inexact) - 1, 'reason')} more" if len(self.inexact) > 1 else ""
        return f"{who} read the files and {what}{doubt}{more}{compiles}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings())

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": dict(self.versions),
            "says": self.says,
            "ranks": [one.to_json() for one in self.readings],
            "exact": self.plan is not None and self.plan.exact,
            "inexact": [asdict(one) for one in self.inexact],
            "ends": self.ends.message if self.ends else None,
            "compiles": self.compiles.to_json() if self.compiles else None,
        }

    def _findings(self) -> Iterator[Finding]:
        if self.ends is not None:
            yield finding("server-ends", self.ends.message, self.ends.remedy or BY_ITSELF, where=self.name)
        elif self.is_idle:
            message = "its own start tunes nothing; it loads no cache, whatever files there are"
            yield finding("tunes-nothing", message, where=self.name)
        for what, why in self.plan.unknown if self.plan else ():
            message = f"{what}: not known: {why}"
            yield finding("not-planned", message, BY_ITSELF, Severity.ERROR, where=self.name)
        for one in self.readings:
            yield from self._of_rank(one)

    def _of_rank(self, one: Reading) -> Iterator[Finding]:
        words = f": {'; '.join(one.said)}" if one.said else ""
        for path in (path for path, taken in one.files.items() if taken is False):
            message = f"the server's own start does not take {PurePosixPath(path).name}{words}"
            yield finding("server-ignores", message, WARM, where=self.name)
        if one.profiled:
            named = some([entry_name(key) for key in one.profiled])
            message = f"rank {one.rank}: the server's own start would measure tactics: it asks for {named}"
            yield finding("server-profiles", f"{message}{words}", WARM, where=self.name)


def served(asked: Asked, target: Target) -> Served:
    """Start the ranks that may differ, each with its own rank file, and return what they did with it."""
    server = asked.question.server
    target.check_server(server.python, server.flashinfer)
    reading, root = asked.reading(target.said if target.metadata is not None else None), asked.whose.cache_dir
    settled = asked.settled()
    name, versions = asked.whose.name, settled.asked.versions
    try:
        plan = reading.plan()
    except CheckFailed as error:
        caches = tuple(check(cache, versions.get("sglang")) for cache in _caches(root, [settled]))
        return Served(name, versions, None, (), caches, error)
    checked = []
    for cache in plan.all_caches:
        expected = expected_of_record(cache)
        there = caches_open(root / cache.folder, root) or [expected.empty_cache(root)]
        checked.append(check(there[0], plan.sglang, True, [expected]))
    kernels = compiles(
        plan.records, root, asked.question.gpu.arch, {**os.environ, **asked.question.environment}
    )
    readings = readings_of(plan.records, reading.handed)
    return Served(name, versions, plan, readings, tuple(checked), compiles=kernels)


def _caches(root: Path, records: Sequence[Record]) -> Iterator[Cache]:
    folders = {
        PurePosixPath(name).parent for is_draft in (False, True) for name in files_of(records, is_draft)
    }
    for folder in sorted(folders):
        yield from caches_open(root / folder, root)[:1]


def expected_of_record(cache: RecordedCache) -> Expected:
    """Return all lookups of a recorded start, with the calls that a warm cannot make again."""
    return Expected.of(cache, cache.all_ops, WARM if not cache.left else BY_ITSELF)
