"""The plan of a warm from a server's own start: its caches, and what is uncertain about them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from runtime.record.parts import Inexact
from runtime.record.record import Record
from sgl_tune.cache.asked import Gap, Tunes, Verdict, told
from sgl_tune.cache.rank_names import RankName
from sgl_tune.recorded.caches import RecordedCache, caches_of, unplaced

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Whose:
    """The server of a plan, as pages name it. `argv`: its flags as typed."""

    name: str
    model_path: str
    cache_dir: Path
    argv: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedPlan:
    """The plan from a server's own start. `records`: of the started ranks, the first rank first."""

    deployment: Whose
    records: tuple[Record, ...]
    workers: int = 1

    @property
    def sglang(self) -> str | None:
        return self.records[0].asked.versions.get("sglang")

    @property
    def flashinfer(self) -> str | None:
        return self.records[0].asked.versions.get("flashinfer-python")

    @cached_property
    def all_caches(self) -> tuple[RecordedCache, ...]:
        return caches_of(self.records)

    @property
    def caches(self) -> tuple[RecordedCache, ...]:
        """Return the caches that a warm fills."""
        return tuple(cache for cache in self.all_caches if cache.replayable)

    @property
    def inexact(self) -> tuple[Inexact, ...]:
        found = {(one.kind, one.name, one.why): one for record in self.records for one in record.inexact}
        return tuple(found.values())

    @property
    def exact(self) -> bool:
        return not self.inexact and not self.unknown

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Return the calls that no warm can repeat, with the reason."""
        named = ((call.function, call.unreplayable) for cache in self.all_caches for call in cache.left)
        return tuple(dict.fromkeys(named))

    @property
    def unknown(self) -> tuple[tuple[str, str], ...]:
        """Return what the records do not show of this server's lookups, with the reason."""
        cut = (
            (f"what rank {record.asked.rank} asks for later", f"its start {_end(record)}")
            for record in self.records
            if record.ending.how != "ready"
        )
        silent = ((f"what {one.name} tunes", one.why) for one in self.inexact if one.kind == "tuner")
        return (*unplaced(self.records), *cut, *dict(silent).items())

    @property
    def unplanned(self) -> tuple[tuple[str, str], ...]:
        return (*self.left, *self.unknown)

    @property
    def obstacle(self) -> str | None:
        """Return why no warm can write the files that this server reads, or None."""
        ranks = (RankName.parse(Path(path).name) for cache in self.caches for path in cache.paths)
        if any(rank and rank.gpu for rank in ranks):
            return "SGLang names these files by the GPU's own number, which another GPU does not have"
        return None

    @property
    def says(self) -> str:
        if not self.all_caches and not self.unknown:
            return "tunes nothing: this server's start did not tune"
        replays = [f"{function} cannot be replayed: {why}" for function, why in self.left[:_SHOWN]]
        left = "; ".join([*replays, *(f"{what}: not known: {why}" for what, why in self.unknown)])
        if not self.caches:
            return f"tunes what cannot be planned: {left}"
        return f"tunes {told(self.caches)}{f'; {left}' if left else ''}"

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    @property
    def notes(self) -> tuple[str, ...]:
        first = self.records[0]
        started = [record.asked.rank for record in self.records]
        versions = first.asked.versions
        named = f"SGLang {versions.get('sglang')}, FlashInfer {versions.get('flashinfer-python')}"
        many = len(started) > 1
        ranks = f"rank{'s' * many} {', '.join(map(str, started))} {'were' if many else 'was'}"
        has_gaps = any(later - rank > 1 for rank, later in pairwise(started))
        alike = "; those between are taken to ask for the same" if has_gaps else ""
        asked = f"asked of {named} on {first.asked.gpu}: {ranks} started{alike}"
        return (asked, *self._prefills, *self.deployment.notes)

    @property
    def _prefills(self) -> tuple[str, ...]:
        """Return a note on prefills with more rows than the entries, if no CUDA graph has as many."""
        rows = (self.records[0].sizes and self.records[0].sizes.chunked_prefill_size) or 0
        ops = [op for cache in self.all_caches for op in cache.all_ops]
        captured = max((row for op in ops for row in op.serving_only), default=0)
        short = [f"{op.op} up to {op.buckets[-1]}" for op in ops if max(op.buckets, default=rows) < rows]
        text = f"no CUDA graph here has a prefill of {rows} rows, whose entries may be missing: planned are"
        return (f"{text} {', '.join(short)}",) if short and captured < rows else ()

    @property
    def verdict(self) -> Verdict:
        gaps = tuple(Gap(what, why) for what, why in self.unplanned)
        tunes: Tunes = "unplanned" if gaps else "planned" if self.all_caches else "nothing"
        return Verdict(tunes, self.says, gaps, self.obstacle)

    def to_json(self) -> dict[str, Any]:
        first = self.records[0]
        target, *drafts = (cache.to_json() for cache in self.all_caches or (RecordedCache("", (), ()),))
        data = {
            "server": {"versions": first.asked.versions, "arguments": first.arguments},
            "deployment": {"argv": list(self.deployment.argv), "gpu": first.asked.gpu},
            "cache_dir": str(self.deployment.cache_dir),
            **target,
            "workers": self.workers,
            "worker_bytes": self.worker_bytes,
            "notes": list(self.notes),
            "exact": self.exact,
            "inexact": [asdict(one) for one in self.inexact],
            "verdict": self.verdict.to_json(),
        }
        return {**data, "draft": drafts[0]} if drafts else data

    @property
    def worker_bytes(self) -> int:
        """Return the bytes of the largest call's tensors, because calls are made one at a time."""
        calls = [call for cache in self.caches for call in cache.replayable]
        return max((sum(one.bytes for one in call.storages) for call in calls), default=0)


def _end(record: Record) -> str:
    where = f" in {record.ending.phase}" if record.ending.phase else ""
    return f"ended{where}: {record.ending.type or record.ending.how}"


def plan_of(records: Sequence[Record], whose: Whose, workers: int) -> RecordedPlan:
    return RecordedPlan(whose, tuple(records), workers)
