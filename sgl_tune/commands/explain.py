"""`sgl-tune explain`: what a server makes of a command, and what another server would make of it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from runtime.ghost.gpus import gpus
from sgl_tune.asking.live import Live
from sgl_tune.asking.question import gpu_of
from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption
from sgl_tune.cli.pages import SCHEMA_VERSIONS
from sgl_tune.cli.parameters import Option
from sgl_tune.commands.asked import RemoteCodeOption, ServerOption, asked_by
from sgl_tune.deployment.file_option import FileOption
from sgl_tune.deployment.options import ServerCommand, ServerFlags, TargetOption
from sgl_tune.errors import CheckFailed, Ended, SglTuneError, UsageError
from sgl_tune.explain.account import Account
from sgl_tune.explain.compare import Comparison, show_account, show_comparison
from sgl_tune.markdown import output_of
from sgl_tune.recorded.asked import Asked, asking
from sgl_tune.servers.home import RELEASE
from sgl_tune.servers.server import Server, find_server, server_at
from sgl_tune.verify.environment import UNTOLD, read_target

_WHAT = "explain shows what a server's own start settles"


def explain(
    flags: ServerFlags,
    command: ServerCommand = None,
    file: FileOption = None,
    server: ServerOption = None,
    against: Annotated[
        list[str] | None,
        Option(
            "--against",
            metavar="PATH|X.Y.Z|GPU",
            help="Compare with another server or another GPU, and show which caches survive.",
        ),
    ] = None,
    target: TargetOption = None,
    trust_remote_code: RemoteCodeOption = False,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Show what SGLang makes of a command: its arguments, whether it tunes and why, and its cache key.

    The server's start stops before the model is built, so this takes seconds. --against names a second
    server or another GPU. Then both starts run to their end and are compared. --against may be given
    twice.

    Example: sgl-tune explain --gpu h200 -- python -m sglang.launch_server --model-path M --tp 8

    Example: sgl-tune explain --against 0.5.23 -- python -m sglang.launch_server --model-path M --tp 8
    """
    out = output_of(format, quiet, SCHEMA_VERSIONS["explain"])
    by = asked_by(flags, file, command, server, trust_remote_code).one()
    machine = read_target(target) if target else UNTOLD
    by = replace(by, flags=machine.flags(by.flags, by.command))
    found = by.needed(_WHAT)
    machine.check_server(found.python, found.flashinfer)
    other, gpu_name = _others(against or (), found)
    with asking(by, found, Live(out, found)) as asked:
        name, account = asked.whose.name, _account(asked)
        comparison = None
        if against and account.exit_code == 0:
            gpu = gpu_of(gpu_name) if gpu_name else asked.question.gpu
            comparison = _compared(account, asked, asked.of(other, gpu, Live(out, other)))

    if comparison is None:
        out.result(account.to_json(), lambda: show_account(out, name, account), [account.says])
    else:
        data = {**account.to_json(), "against": comparison.to_json()}
        lines = [one.name for one in comparison.differences]
        out.result(data, partial(show_comparison, out, name, comparison), lines)
    raise Ended(account.exit_code)


def _account(asked: Asked) -> Account:
    return Account(asked.settled(), asked.whose.argv)


def _others(against: Sequence[str], first: Server) -> tuple[Server, str | None]:
    """Return the server and the GPU that --against names. If it names only a GPU, return the first server."""
    servers = [name for name in against if name.lower() not in gpus()]
    named = [name for name in against if name not in servers]
    if len(servers) > 1 or len(named) > 1:
        said = f"--against {' '.join(against)}: two are compared"
        raise UsageError(said, "name one server, one GPU, or both")
    return _other(servers[0]) if servers else first, named[0] if named else None


def _other(against: str) -> Server:
    """Return the server of an added release, of a Python or of a venv."""
    is_release = RELEASE.fullmatch(against) is not None and not Path(against).exists()
    found = find_server(None, against) if is_release else server_at(Path(against))
    if isinstance(found, Server):
        return found
    if is_release and not found.has_sglang:
        raise CheckFailed(f"not known: {found.why}", found.remedy)
    raise UsageError(found.why, found.remedy)


def _compared(account: Account, asked: Asked, other: Asked) -> Comparison:
    second = _account(other)
    if second.exit_code != 0:
        return Comparison(account, second)
    try:
        before, after = asked.plan(), other.plan()
    except SglTuneError as error:  # a start that dies has resolved its arguments anyway
        return Comparison(account, second, unasked=error.message)
    from sgl_tune.explain.survival import survivals

    caches = tuple(survivals(before, after, other.question.gpu.name))
    return Comparison(account, second, (before, after), caches=caches)
