"""`sgl-tune warm`: tune a deployment's caches once, for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NoReturn

from sgl_tune.asking.options import CoreOption, RemoteCodeOption, ServerOption
from sgl_tune.asking.question import release_of_image
from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.disk import check_place
from sgl_tune.cli.format import EnvironmentFormat, EnvironmentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.cli.patience import timeout_option
from sgl_tune.commands.warm_recorded import ProofKind, Wishes, is_read_by, tuned, warm_by_server
from sgl_tune.deployment.options import ServerCommand, ServerFlags, TargetOption
from sgl_tune.deployment.project_file import chosen_of_project
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.deployment.versions import Gpu, local_gpus
from sgl_tune.errors import CheckFailed, Ended, UsageError
from sgl_tune.processes.interruption import Interruption, end_by, interruptible
from sgl_tune.verify.environment import UNTOLD, read_target
from sgl_tune.warm.alone import ONE_NODE, check_one_node, check_one_process
from sgl_tune.warm.devices import DeviceKind, Devices, check_target, choose_devices, target_doubts

if TYPE_CHECKING:
    from runtime.ghost.gpus import Gpu as Ghost
    from sgl_tune.commands.warm_outcome import Outcome
    from sgl_tune.compile.everything import Wanted
    from sgl_tune.keys.plan import Plan
    from sgl_tune.keys.verdict import Verdict
    from sgl_tune.recorded.plan import RecordedPlan
    from sgl_tune.warm.main_job import Settings
    from sgl_tune.warm.result import Warmed
    from sgl_tune.warm.workforce import Workforce

MISSED = 1


def warm(
    flags: ServerFlags,
    command: ServerCommand = None,
    deployment: DeploymentOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be tuned.")] = False,
    device: Annotated[DeviceKind, Option("--device", help="Where to tune.")] = DeviceKind.auto,
    gpus: Annotated[str, Option("--gpus", metavar="all|0,1,..", help="GPUs that share the search.")] = "all",
    workers: Annotated[
        int | None,
        Option("--workers", min=1, help="On the CPU: processes that share the search.", show_default="1"),
    ] = None,
    timeout: Annotated[float, timeout_option("Seconds without any progress before giving up.")] = 600,
    renew: Annotated[
        bool, Option("--replace", help="Write files anew that another environment tuned.")
    ] = False,
    prove: Annotated[
        ProofKind,
        Option(
            "--prove",
            help="files: a fresh process loads them and replays every lookup. server: the server's own start"
            " on a GPU that is not there reads them, too.",
        ),
    ] = ProofKind.files,
    no_prove: Annotated[
        bool, Option("--no-prove", help="Save some seconds, and do not know whether the server tunes again.")
    ] = False,
    everything: Annotated[
        bool,
        Option("--everything", help="Also compile what a start compiles, and tell the server's variables."),
    ] = False,
    compile_only: Annotated[
        bool, Option("--compile-only", help="With --everything: only what needs no GPU here.")
    ] = False,
    module: Annotated[
        list[str] | None,
        Option("--module", metavar="NAME", help="With --everything: only this of FlashInfer's modules."),
    ] = None,
    jobs: Annotated[
        int | None,
        Option(
            "--jobs",
            min=1,
            help="With --everything: compilers at once. Default: the cores, as far as the memory goes.",
            show_default=False,
        ),
    ] = None,
    server: ServerOption = None,
    core: CoreOption = False,
    target: TargetOption = None,
    trust_remote_code: RemoteCodeOption = False,
    format: EnvironmentFormatOption = EnvironmentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Tune a deployment's FlashInfer caches once, for every rank, and prove that its server will use them.

    Where SGLang is there to ask, its own start on a GPU that is not there says what it tunes, of any model;
    without it the runtime core plans for the families it knows.
    The deployment is given by SGLang's own flags, by a server command after --, or by sgl-tune.toml.
    A second warm reuses what is there. A server of several nodes is warmed on one of them, for all ranks.
    With --everything the cache directory becomes the root of all that a start compiles.

    Example: sgl-tune warm --model-path Qwen/Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass --tp 4

    Example: sgl-tune warm --everything --compile-only --model-path Qwen/Qwen3-30B-A3B --gpu h200
    """
    out = Output(sink(format, quiet))
    wanted = _wanted(tuple(module or ()), compile_only, jobs, timeout) if everything else None
    _check_wanted(wanted, bool(compile_only or module or jobs), format)
    check_one_process()
    check_one_node(flags)
    here = local_gpus()
    only_core = _only_core(device, workers, flags)
    machine = read_target(target) if target else UNTOLD
    flags = machine.flags(flags, release_of_image(command or ()))
    is_named = (deployment is not None or wanted is not None) and not command
    one = chosen_of_project(flags, deployment) if is_named else None
    asked, words = one or (flags, tuple(command or ()))
    by_server = ByServer(asked, words, server, core, trust_remote_code, only_core)
    wishes = Wishes(dry_run, device, gpus, timeout, renew, None if no_prove else prove, machine)
    if wanted is not None:
        _warm_everything(by_server, wanted, wishes, here, out, format)
    if found := by_server.found():
        warm_by_server(by_server, found, wishes, here, out)
    if prove is ProofKind.server:
        raise UsageError("--prove server starts the server, and none is asked", "add --server PATH")
    from sgl_tune.commands.warm_outcome import Outcome, show_dry_run
    from sgl_tune.deployment.selection import select_deployments
    from sgl_tune.keys.plan import make_plan
    from sgl_tune.keys.verdict import verdict_of

    flags = replace(flags, flashinfer_version=flags.flashinfer_version or machine.flashinfer)
    chosen = select_deployments(flags, command or (), deployment, changes=ONE_NODE)
    plans = [make_plan(one, here) for one in chosen]
    for plan in plans:
        check_place(plan.deployment.cache_dir)
        for doubt in plan.deployment.warnings:
            out.warn(f"{plan.deployment.name}: {doubt}")
    judged = [(plan, verdict_of(plan)) for plan in plans]
    if dry_run:
        show_dry_run(judged, out)
        raise Ended(max(verdict.exit_code for _, verdict in judged))
    devices = choose_devices(device, gpus, workers, here)
    _check_targets(judged, devices, here, out)
    came = Outcome(judged, out)
    try:
        with interruptible():
            from sgl_tune.warm.main_job import Settings

            _warm_all(came, Settings(devices, timeout, renew, not no_prove))
            if not all(is_read_by(out, machine, warmed) for warmed in came.warmed.values()):
                came.code = max(came.code, MISSED)
    except Interruption as interruption:
        came.show_what_is_done()
        out.error(str(interruption))
        raise Ended(end_by(interruption)) from None
    came.show()
    raise Ended(came.code)


def _wanted(modules: tuple[str, ...], compile_only: bool, jobs: int | None, timeout: float) -> Wanted:
    from sgl_tune.compile.everything import Wanted

    return Wanted(modules, compile_only, jobs, timeout)


def _warm_everything(
    asked: ByServer,
    wanted: Wanted,
    wishes: Wishes,
    here: tuple[Gpu, ...],
    out: Output,
    format: EnvironmentFormat,
) -> NoReturn:
    from sgl_tune.commands.warm_root import fill_root, show_root

    server = asked.needed("--everything compiles what a server's own start loads")
    if wishes.dry_run:
        show_root(asked, server, wanted, here, out)

    def tune(plan: RecordedPlan, gpu: Ghost) -> Warmed:
        return tuned(plan, gpu, wishes, here, server, out)

    fill_root(
        asked,
        server,
        wanted,
        here,
        out,
        tune=None if wanted.compiles_only else tune,
        for_kubernetes=format is EnvironmentFormat.kubernetes,
    )


def _check_wanted(wanted: Wanted | None, has_details: bool, format: EnvironmentFormat) -> None:
    if wanted is None and has_details:
        raise UsageError("--compile-only, --module and --jobs are of --everything", "add --everything")
    if wanted is None and format is EnvironmentFormat.kubernetes:
        raise UsageError("--format kubernetes tells the variables of a root", "add --everything")


def _only_core(
    device: DeviceKind,
    workers: int | None,
    flags: ServerFlags,
) -> str | None:
    """The first option of those that the runtime core alone answers."""
    named = {
        "--device cpu": device is DeviceKind.cpu,
        "--workers": workers,
        "--arch": flags.arch and not flags.gpu,
        "--flashinfer-version": flags.flashinfer_version,
    }
    return next((name for name, value in named.items() if value), None)


def _check_targets(
    judged: Sequence[tuple[Plan, Verdict]], devices: Devices, here: tuple[Gpu, ...], out: Output
) -> None:
    for plan, verdict in judged:
        if not plan.caches or verdict.obstacle:
            continue
        check_target(plan.deployment, devices, here)
        for doubt in target_doubts(plan.deployment):
            out.warn(f"{plan.deployment.name}: {doubt}")


def _check_tunable(verdict: Verdict) -> None:
    if verdict.obstacle is not None:
        raise CheckFailed(
            verdict.says,
            "let the server tune them at its first start; `sgl-tune verify` judges what it saves",
        )


def _warm_all(came: Outcome, settings: Settings) -> None:
    """One deployment's failure is no reason to leave the others cold."""
    from sgl_tune.warm.main_job import workforce

    planned = [(number, plan) for number, (plan, _) in enumerate(came.judged) if plan.caches]
    came.code = max(came.code, *(verdict.exit_code for _, verdict in came.judged))
    with workforce() as force:
        for number, plan in planned:
            with came.failure_of(number):
                is_last = number == planned[-1][0]
                warmed = _warm_one(plan, came.judged[number][1], settings, came.out, force, is_last)
                came.warmed[number] = warmed
                came.code = max(came.code, 0 if warmed.is_good else MISSED)


def _warm_one(
    plan: Plan, verdict: Verdict, settings: Settings, out: Output, force: Workforce, is_last: bool
) -> Warmed:
    from sgl_tune.warm.main_job import warm_deployment

    for note in plan.notes[len(plan.deployment.warnings) :]:
        out.note(f"{plan.deployment.name}: {note}")
    _check_tunable(verdict)
    return warm_deployment(plan, settings, out, force, is_last)
