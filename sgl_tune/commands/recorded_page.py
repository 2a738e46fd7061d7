"""The plan that a server's own start made, for a person."""

from __future__ import annotations

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.recorded.caches import RecordedCache, RecordedOp
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.units import count, human_bytes

_OPS = (Column("OP", path=True), Column("ENTRIES", right=True), Column("BUCKETS"), Column("SERVING ONLY"))
_SHOWN = 6
SCHEMA_VERSION = 2  # of what `warm` prints as JSON


def show_recorded(out: Output, plan: RecordedPlan) -> None:
    out.line(plan.says, style="red" if plan.exit_code else "bold" if plan.caches else "yellow")
    if plan.obstacle:
        out.line(plan.obstacle, style="red", indent=2)
    for note in plan.notes:
        out.line(f"- {note}", style="dim", indent=2)
    for one in plan.inexact[:_SHOWN]:
        where = f" in {one.phase}" if one.phase else ""
        out.line(f"- not exact: {one.name}{where}: {one.why}", style="yellow", indent=2)
    if len(plan.inexact) > _SHOWN:
        out.line(f"- and {count(len(plan.inexact) - _SHOWN, 'reason')} more", style="yellow", indent=2)
    for cache in plan.caches:
        _show_cache(out, plan, cache)
    if plan.caches:
        out.line()
        size = human_bytes(plan.worker_bytes)
        out.line(f"{count(plan.workers, 'worker')}, about {size} of memory each: one call at a time")


def _show_cache(out: Output, plan: RecordedPlan, cache: RecordedCache) -> None:
    out.line()
    out.line(f"Key: {cache.key}", style="bold")
    out.line(f"{count(len(cache.paths), 'file')} in {plan.deployment.cache_dir}/{cache.folder}")
    for group in cache.groups:
        names = [path.rpartition("/")[2] for path in group]
        shown = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
        same = "" if len(names) == 1 else f": {len(names)}, the same bytes in each"
        out.line(f"{shown}{same}", indent=2)
    out.line()
    rows = [_row(op) for op in cache.ops]
    shown_columns = len(_OPS) if any(row[-1] for row in rows) else len(_OPS) - 1
    out.table(_OPS[:shown_columns], [row[:shown_columns] for row in rows])


def _row(op: RecordedOp) -> tuple[str, int, str, str]:
    serving = op.serving_only
    told = ", ".join(map(str, serving)) if len(serving) <= 2 else f"{serving[0]} .. {serving[-1]}"
    return op.op, len(op.keys), f"{op.buckets[0]} .. {op.buckets[-1]}", told
