"""`sgl-tune warm`: tune a deployment's caches once, for every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

from sgl_tune.asking.options import CoreOption, RemoteCodeOption, ServerOption
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.format import EnvironmentFormat, EnvironmentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.cli.patience import timeout_option
from sgl_tune.commands.warm_wishes import DeviceKind, ProofKind, Wishes
from sgl_tune.deployment.options import ServerCommand, ServerFlags, TargetOption
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.warm.alone import check_one_node, check_one_process

if TYPE_CHECKING:
    from sgl_tune.compile.everything import Wanted


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
    words = tuple(command or ())
    machine = None
    if target:
        from sgl_tune.asking.question import release_of_image
        from sgl_tune.verify.environment import read_target

        machine = read_target(target)
        flags = machine.flags(flags, release_of_image(words))
    proof = None if no_prove else prove
    wishes = Wishes(dry_run, device, gpus, workers, timeout, renew, proof, machine, local_gpus())
    one = flags, words
    if (deployment is not None or wanted is not None) and not words:
        from sgl_tune.deployment.project_file import chosen_of_project

        one = chosen_of_project(flags, deployment) or one
    only_core = _only_core(device, workers, flags)
    by_server = ByServer(*one, server, core, trust_remote_code, only_core)
    if wanted is not None:
        _warm_everything(by_server, wanted, wishes, out, format)
    if found := by_server.found():
        from sgl_tune.commands.warm_recorded import warm_by_server

        warm_by_server(by_server, found, wishes, out)
    if prove is ProofKind.server:
        raise UsageError("--prove server starts the server, and none is asked", "add --server PATH")
    from sgl_tune.commands.warm_core import judged_by_core, show_dry_run

    judged = judged_by_core(flags, words, deployment, wishes, out)
    if dry_run:
        show_dry_run(judged, out)
    from sgl_tune.commands.warm_outcome import warm_all

    warm_all(judged, wishes, out)


def _wanted(modules: tuple[str, ...], compile_only: bool, jobs: int | None, timeout: float) -> Wanted:
    from sgl_tune.compile.everything import Wanted

    return Wanted(modules, compile_only, jobs, timeout)


def _warm_everything(
    asked: ByServer, wanted: Wanted, wishes: Wishes, out: Output, format: EnvironmentFormat
) -> NoReturn:
    from sgl_tune.commands.warm_root import fill_root, show_root

    server = asked.needed("--everything compiles what a server's own start loads")
    if wishes.dry_run:
        show_root(asked, server, wanted, wishes.here, out)
    fill_root(asked, server, wanted, wishes, out, format is EnvironmentFormat.kubernetes)


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
