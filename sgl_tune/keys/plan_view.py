"""A plan, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.server.cache_key import named_parts
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.keys.keys import TunedOp
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.keys.verdict import Verdict
from sgl_tune.units import count, human_bytes

_OPS = (Column("OP", path=True), Column("ENTRIES", right=True), Column("BUCKETS"), Column("SERVING ONLY"))
_STYLES = {"nothing": "yellow", "planned": "bold", "unplanned": "red"}


def show_plans(out: Output, plans: Sequence[tuple[Plan, Verdict]]) -> None:
    for plan, verdict in plans:
        show_verdict(out, plan, verdict, named=len(plans) > 1)
        _show_plan(out, plan)


def show_verdict(out: Output, plan: Plan, verdict: Verdict, named: bool) -> None:
    name = f"{plan.deployment.name}: " if named else ""
    out.line(f"{name}{verdict.says}", style=_STYLES[verdict.tunes])


def _show_plan(out: Output, plan: Plan) -> None:
    chosen = plan.deployment
    out.line(how_it_runs(plan), indent=2)
    out.line(
        f"SGLang {chosen.sglang_version}, FlashInfer {chosen.flashinfer_version}, {chosen.arch}", indent=2
    )
    for note in plan.notes:
        out.line(f"- {note}", indent=2, style="dim")
    if plan.is_idle:
        out.line()
        return
    _show_cache(out, plan, plan.target, "")
    if plan.draft is not None:
        _show_cache(out, plan, plan.draft, " of the draft worker")
    if plan.target.ops:
        out.line()
        out.line(
            f"{count(plan.workers, 'worker')}, about {human_bytes(plan.worker_bytes)} of memory each: "
            "one layer of each kind"
        )
    out.line()


def how_it_runs(plan: Plan) -> str:
    parallel = plan.deployment.parallel
    sizes = [f"tp {parallel.tp}", f"pp {parallel.pp}", f"ep {parallel.ep}"]
    if parallel.dp > 1:
        sizes.append(f"dp {parallel.dp} ({'attention' if parallel.enable_dp_attention else 'replicas'})")
    if parallel.nnodes > 1:
        sizes.append(f"node {parallel.node_rank} of {parallel.nnodes}")
    return f"{plan.deployment.model_path}: {', '.join(sizes)}"


def _show_cache(out: Output, plan: Plan, cache: CachePlan, whose: str) -> None:
    out.line()
    out.line(f"Key{whose}: {cache.key}", style="bold")
    for name, part in named_parts(cache.key_parts).items():
        out.line(f"{name:<21}{part}".rstrip(), indent=2)
    _show_files(out, plan, cache)
    if cache.ops:
        out.line()
        rows = [_op_row(op) for op in cache.ops]
        shown = len(_OPS) if any(row[-1] for row in rows) else len(_OPS) - 1
        out.table(_OPS[:shown], [row[:shown] for row in rows])


def _show_files(out: Output, plan: Plan, cache: CachePlan) -> None:
    out.line()
    out.line(f"{count(len(cache.files), 'file')} in {plan.deployment.cache_dir}/{cache.folder}")
    for group in cache.groups:
        names = [path.rsplit("/", 1)[-1] for path in group]
        shown = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
        same = "" if len(names) == 1 else f": {len(names)}, the same bytes in each"
        out.line(f"{shown}{same}", indent=2)


def _op_row(op: TunedOp) -> tuple[str, int, str, str]:
    buckets, serving = op.buckets, op.serving_only
    return (op.op, len(op.keys), f"{buckets[0]} .. {buckets[-1]}", _ranges(serving))


def _ranges(buckets: tuple[int, ...]) -> str:
    if len(buckets) <= 2:
        return ", ".join(map(str, buckets))
    return f"{buckets[0]} .. {buckets[-1]}"
