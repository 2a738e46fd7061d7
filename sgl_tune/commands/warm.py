"""`sgl-tune warm`: tune a deployment's caches once, for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgl_tune.cache.disk import kind_of
from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.deployment.options import ServerCommand, ServerFlags, takes_server_flags
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import CheckFailed, SglTuneError, UsageError
from sgl_tune.keys.advice import advised
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.plan_view import show_plans, show_verdict
from sgl_tune.keys.verdict import Verdict, verdict_of
from sgl_tune.processes.interruption import Interruption, end_by, interruptible
from sgl_tune.warm.devices import DeviceKind, check_target, choose_devices, target_doubts
from sgl_tune.warm.result_page import show_warmed

if TYPE_CHECKING:
    from sgl_tune.warm.main_job import Settings
    from sgl_tune.warm.result import Warmed
    from sgl_tune.warm.workforce import Workforce

MISSED = 1


@takes_server_flags
def warm(
    flags: ServerFlags,
    command: ServerCommand = None,
    deployment: DeploymentOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be tuned.")] = False,
    device: Annotated[DeviceKind, typer.Option("--device", help="Where to tune.")] = DeviceKind.auto,
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="all|0,1,..", help="GPUs that share the search.")
    ] = "all",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="On the CPU: processes that share the search.", show_default="1"
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds without any progress before giving up.")
    ] = 600,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="With --nnodes: 16 bytes or more, the same on every node. Node 0 listens at --dist-init-addr"
            " alone and until all have come, and believes nobody without it; what is told is signed, not"
            " hidden.",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write files anew that another environment tuned.")
    ] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove/--no-prove",
            help="Load the files in a fresh process and replay every lookup. Without it you save some seconds"
            " and do not know whether the server will tune again.",
        ),
    ] = True,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Tune a deployment's FlashInfer caches once, for every rank, and prove that its server will use them.

    The deployment is given by SGLang's own flags, by a server command after --, or by sgl-tune.toml.
    A second warm reuses what is there. Under torchrun or srun the processes found are the workers.

    Example: sgl-tune warm --model-path Qwen/Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass --tp 4
    """
    out = Output(sink(format, quiet))
    here = local_gpus()
    plans = [make_plan(chosen, here) for chosen in select_deployments(flags, command or (), deployment)]
    for plan in plans:
        _check_place(plan.deployment.cache_dir)
        for doubt in plan.deployment.warnings:
            out.warn(f"{plan.deployment.name}: {doubt}")
    judged = [(plan, advised(plan)) for plan in plans]
    if dry_run:
        _show_dry_run(judged, out)
        raise typer.Exit(max(verdict.exit_code for _, verdict in judged))
    from sgl_tune.warm.main_job import Settings

    devices = choose_devices(device, gpus, workers, here)
    for plan, verdict in judged:
        if not plan.caches or verdict.obstacle or not verdict.runs:
            continue
        check_target(plan.deployment, devices, here)
        for doubt in target_doubts(plan.deployment):
            out.warn(f"{plan.deployment.name}: {doubt}")
    try:
        with interruptible():
            code = _warm_all(judged, Settings(devices, timeout, replace, prove, secret_file), out)
    except Interruption as interruption:
        out.error(str(interruption))
        code = end_by(interruption)
    raise typer.Exit(code)


def _show_dry_run(judged: Sequence[tuple[Plan, Verdict]], out: Output) -> None:
    out.result(
        _one_or_all([_planned_json(plan, verdict) for plan, verdict in judged]),
        human=lambda: show_plans(out, judged),
        quiet=(str(path) for plan, _ in judged for path in plan.paths),
    )
    if out.format is Format.quiet:
        _warn_of_the_rest(judged, out)


def _warn_of_the_rest(judged: Sequence[tuple[Plan, Verdict]], out: Output) -> None:
    for plan, verdict in judged:
        if verdict.tunes != "planned":
            out.warn(f"{plan.deployment.name}: {verdict.says}")


def _check_tunable(verdict: Verdict) -> None:
    if verdict.obstacle is not None:
        raise CheckFailed(
            verdict.says,
            "let the server tune them at its first start; `sgl-tune verify` judges what it saves",
        )


def _check_place(cache_dir: Path) -> None:
    there = next(path for path in (cache_dir, *cache_dir.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(
            f"--cache-dir {cache_dir}: {there} is {kind_of(there)}, not a folder", "name a folder"
        )


def _warm_all(judged: Sequence[tuple[Plan, Verdict]], settings: Settings, out: Output) -> int:
    """One deployment's failure is no reason to leave the others cold; what was done before Ctrl-C is told."""
    from sgl_tune.warm.main_job import workforce

    done: list[Warmed] = []
    code = max(verdict.exit_code for _, verdict in judged)
    try:
        with workforce() as force:
            planned = [(plan, verdict) for plan, verdict in judged if plan.caches]
            for number, (plan, verdict) in enumerate(planned, start=1):
                try:
                    warmed = _warm_one(plan, verdict, settings, out, force, number == len(planned))
                except SglTuneError as error:
                    if len(judged) == 1:
                        raise
                    out.error(f"{plan.deployment.name}: {error.message}", error.remedy)
                    code = max(code, error.exit_code)
                    continue
                if warmed is not None:
                    done.append(warmed)
                    code = max(code, 0 if warmed.is_proven else MISSED)
    except Interruption:
        if done:
            _show(done, [], out, named=True)
        raise
    left = [(plan, verdict) for plan, verdict in judged if verdict.tunes != "planned"]
    if done or left:
        _show(done, left, out, named=len(judged) > 1)
    return code


def _warm_one(
    plan: Plan, verdict: Verdict, settings: Settings, out: Output, force: Workforce, is_last: bool
) -> Warmed | None:
    from sgl_tune.warm.main_job import warm_deployment

    for note in plan.notes[len(plan.deployment.warnings) :]:
        out.note(f"{plan.deployment.name}: {note}")
    _check_tunable(verdict)
    return warm_deployment(plan, settings, out, force, is_last)


def _show(done: Sequence[Warmed], left: Sequence[tuple[Plan, Verdict]], out: Output, named: bool) -> None:
    """What was not warmed whole comes first, and says so."""

    def human() -> None:
        for plan, verdict in left:
            show_verdict(out, plan, verdict, named)
        for warmed in done:
            show_warmed(out, warmed)

    results = [_planned_json(plan, verdict) for plan, verdict in left if not plan.caches]
    results += [{**warmed.to_json(), "verdict": verdict_of(warmed.plan).to_json()} for warmed in done]
    paths = (str(path) for warmed in done for cache in warmed.caches for path in cache.written.paths)
    out.result(_one_or_all(results), human=human, quiet=paths)
    if out.format is Format.quiet:
        _warn_of_the_rest(left, out)


def _planned_json(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    return {**plan.to_json(), "verdict": verdict.to_json()}


def _one_or_all(results: list[dict[str, Any]]) -> dict[str, Any]:
    return results[0] if len(results) == 1 else {"plans": results}
