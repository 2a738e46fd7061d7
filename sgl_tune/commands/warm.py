"""`sgl-tune warm`: tune a deployment's caches once, for every rank."""

from dataclasses import replace
from typing import Annotated

from sgl_tune.cli.format import EnvironmentFormat, EnvironmentFormatOption, QuietOption, sink, timeout_option
from sgl_tune.cli.out import Output
from sgl_tune.cli.pages import SCHEMA_VERSIONS
from sgl_tune.cli.parameters import Option
from sgl_tune.commands.asked import RemoteCodeOption, ServerOption, asked_by
from sgl_tune.commands.warm_wishes import DeviceKind, ProofKind, Wishes, check_one_process
from sgl_tune.deployment.file_option import FileOption
from sgl_tune.deployment.options import ServerCommand, ServerFlags, TargetOption
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError


def warm(
    flags: ServerFlags,
    command: ServerCommand = None,
    file: FileOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be tuned.")] = False,
    device: Annotated[DeviceKind, Option("--device", help="Where to tune.")] = DeviceKind.auto,
    timeout: Annotated[float, timeout_option("Seconds without any progress before giving up.")] = 600,
    renew: Annotated[bool, Option("--replace", help="Replace files that another environment tuned.")] = False,
    prove: Annotated[
        ProofKind,
        Option(
            "--prove",
            help="files: a fresh process loads the files and repeats every lookup. server: the server's own"
            " start on a simulated GPU reads them too. none: skip the proof, some seconds less.",
        ),
    ] = ProofKind.files,
    everything: Annotated[
        bool,
        Option("--everything", help="Also compile all kernels of a start; print the server's variables."),
    ] = False,
    compile_only: Annotated[
        bool, Option("--compile-only", help="With --everything: do only the steps that need no GPU.")
    ] = False,
    server: ServerOption = None,
    target: TargetOption = None,
    trust_remote_code: RemoteCodeOption = False,
    format: EnvironmentFormatOption = EnvironmentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Tune a deployment's FlashInfer caches once, for every rank, and prove that its server will use them.

    If SGLang can be asked, its own start on a simulated GPU (the ghost) shows what it tunes, for any model.
    Otherwise the runtime core makes the plan, for the model families it knows. Give the deployment as
    SGLang's own flags, as a server command after --, or in sgl-tune.toml. A second warm reuses existing
    entries. Warm a server of several nodes on one node, for all ranks. With --everything the cache directory
    also gets every kernel that a start compiles.

    Example: sgl-tune warm --model-path Qwen/Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass --tp 4

    Example: sgl-tune warm --everything --compile-only --model-path Qwen/Qwen3-30B-A3B --gpu h200
    """
    out = Output(sink(format, quiet), version=SCHEMA_VERSIONS["warm"])
    if compile_only and not everything:
        raise UsageError("--compile-only needs --everything", "add --everything")
    if format is EnvironmentFormat.kubernetes and not everything:
        raise UsageError("--format kubernetes prints the variables of --everything", "add --everything")
    check_one_process()
    on_cpu = "--device cpu" if device is DeviceKind.cpu else None
    by, machine = asked_by(flags, file, command, server, trust_remote_code, on_cpu), None
    if target:
        from sgl_tune.verify.environment import read_target

        machine = read_target(target)
        by = replace(by, flags=machine.flags(by.flags, by.command))
    wishes = Wishes(dry_run, device, timeout, renew, prove, machine, local_gpus(), compile_only)
    if everything:
        from sgl_tune.commands.warm_root import fill_root, show_root

        by = by.one()
        started = by.needed("--everything compiles what a server's own start loads")
        if dry_run:
            show_root(by, started, wishes.here, out)
        fill_root(by, started, wishes, out, format is EnvironmentFormat.kubernetes)
    several = by.meant()
    meant = {one.name: by.of(one) for one in several}
    found = {name: asked.found() for name, asked in meant.items()}
    if any(found.values()):
        from sgl_tune.commands.warm_recorded import warm_by_server

        why = "a server is asked for the other deployments"
        warm_by_server([(n, one, found[n] or one.needed(why)) for n, one in meant.items()], wishes, out)
    if prove is ProofKind.server:
        raise UsageError("--prove server starts the server, and none is asked", "add --server PATH")
    from sgl_tune.commands.warm_core import plans_by_core, show_dry_run

    plans = plans_by_core(several, wishes, out)
    if dry_run:
        show_dry_run(plans, out)
    from sgl_tune.commands.warm_outcome import warm_all

    warm_all(plans, wishes, out)
