"""The human output of a plan, from the core or from a server's own start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runtime.server.cache_key import named_parts
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.model_files import NO_MODEL
from sgl_tune.units import count, human_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from sgl_tune.cache.asked import CachePlan, Verdict
    from sgl_tune.keys.plan import Plan
    from sgl_tune.recorded.plan import RecordedPlan

_OPS = columns_of("OP/", ">ENTRIES", "BUCKETS", "SERVING ONLY")
_STYLES = {"nothing": "yellow", "planned": "bold", "unplanned": "red"}
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What the warm of one deployment answers: as JSON, on a page, as paths, and as an exit code."""

    data: dict[str, Any]
    show: Callable[[], None]
    paths: tuple[str, ...]
    code: int


def show_verdict(out: Output, plan: Plan, verdict: Verdict, named: bool) -> None:
    name = f"{plan.deployment.name}: " if named else ""
    out.line(f"{name}{verdict.says}", style=_STYLES[verdict.tunes])


def show_plan(out: Output, plan: Plan) -> None:
    chosen, given = plan.deployment, plan.deployment.inputs
    out.line(_how_it_runs(plan), indent=2)
    versions = f"SGLang {given.sglang_version}, FlashInfer {given.flashinfer_version}"
    out.line(f"{versions}, {chosen.arch}", indent=2)
    for note in plan.notes[len(plan.warnings) :]:
        if note != NO_MODEL:  # printed before, as the first line
            out.line(f"- {note}", indent=2, style="dim")
    if not plan.is_idle:
        _show_cache(out, plan.target, chosen.cache_dir, named_parts(plan.target.key_parts))
        if plan.draft is not None:
            parts = named_parts(plan.draft.key_parts)
            _show_cache(out, plan.draft, chosen.cache_dir, parts, " of the draft worker")
        if plan.target.ops:
            _show_workers(out, plan, "one layer of each kind")
    out.line()


def _how_it_runs(plan: Plan) -> str:
    parallel = plan.deployment.parallel
    sizes = [f"tp {parallel.tp}", f"pp {parallel.pp}", f"ep {parallel.ep}"]
    if parallel.dp > 1:
        sizes.append(f"dp {parallel.dp} ({'attention' if parallel.enable_dp_attention else 'replicas'})")
    if parallel.nnodes > 1:
        sizes.append(f"node {parallel.node_rank} of {parallel.nnodes}")
    return f"{plan.deployment.model_path}: {', '.join(sizes)}"


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
        _show_cache(out, cache, plan.deployment.cache_dir)
    if plan.caches:
        _show_workers(out, plan, "one call at a time")


def _show_workers(out: Output, plan: Plan | RecordedPlan, what: str) -> None:
    out.line()
    size = human_bytes(plan.worker_bytes)
    out.line(f"{count(plan.workers, 'worker')}, about {size} of memory each: {what}")


def _show_cache(
    out: Output,
    cache: CachePlan,
    root: Path,
    parts: Mapping[str, str] = MappingProxyType({}),
    whose: str = "",
) -> None:
    out.line()
    out.line(f"Key{whose}: {cache.key}", style="bold")
    for name, part in parts.items():
        out.line(f"{name:<21}{part or '-'}", indent=2)
    if parts:
        out.line()
    out.line(f"{count(len(cache.paths), 'file')} in {root}/{cache.folder}")
    for group in cache.groups:
        names = [path.rpartition("/")[2] for path in group]
        shown = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
        same = "" if len(names) == 1 else f": {len(names)}, the same bytes in each"
        out.line(f"{shown}{same}", indent=2)
    if cache.ops:
        out.line()
        rows = [
            (op.op, len(op.keys), f"{op.buckets[0]} .. {op.buckets[-1]}", _ranges(op.serving_only))
            for op in cache.ops
        ]
        columns = len(_OPS) if any(row[-1] for row in rows) else len(_OPS) - 1
        out.table(_OPS[:columns], [row[:columns] for row in rows])


def _ranges(buckets: Sequence[int]) -> str:
    return ", ".join(map(str, buckets)) if len(buckets) <= 2 else f"{buckets[0]} .. {buckets[-1]}"
