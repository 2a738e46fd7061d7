"""`sgl-tune verify`: predict what the next server start does with every file, and why."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from sgl_tune.cache.layouts.find import keys
from sgl_tune.cli.format import FindingsFormat, FindingsFormatOption, LockOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.commands.asked import RemoteCodeOption, ServerOption, asked_by
from sgl_tune.commands.verify_page import github_lines, show_report
from sgl_tune.deployment.file_option import FileOption, split_positionals
from sgl_tune.deployment.options import ServerFlags, TargetOption
from sgl_tune.errors import Ended, UsageError
from sgl_tune.recorded.to_paste import to_paste
from sgl_tune.ship.recognised import is_bundle
from sgl_tune.stores.find import TACTICS, Stored, store_asked_for, stores_below
from sgl_tune.verify.access import User, find_user
from sgl_tune.verify.environment import Target, read_target, target_here
from sgl_tune.verify.expected import WARM
from sgl_tune.verify.findings import Verdict, VerifyReport
from sgl_tune.verify.replayed import ReplayedCache, judge_replay, replay_line
from sgl_tune.verify.scope import Scope, VerifyOptions, scope_of
from sgl_tune.verify.stores import StoreReport, machine_of, verify_stores, with_stores
from sgl_tune.verify.verdict_line import stores_line, verdict_line
from sgl_tune.verify.verify import verify as predict

if TYPE_CHECKING:
    from sgl_tune.verify.by_server import Served

_OF_FLEETS = (FindingsFormat.markdown, FindingsFormat.junit, FindingsFormat.prometheus)
_UNUSED = (Verdict.IGNORED, Verdict.REPLACED, Verdict.DELETED, Verdict.CRASH, Verdict.MISSING)
_PATIENCE = 600.0  # seconds of a replay without progress
_Folder = AbstractContextManager[tuple[str | None, str | None]]


def verify(
    flags: ServerFlags,
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[PATH|KEY|BUNDLE] [-- SERVER COMMAND]",
            help="A folder, a file, a bundle, or a prefix of a key; after --, a server command.",
            show_default=False,
            autocompletion=keys,
        ),
    ] = None,
    target: TargetOption = None,
    as_user: Annotated[
        str | None,
        Option("--as-user", metavar="NAME|UID", help="Check that this user can read and write the files."),
    ] = None,
    file: FileOption = None,
    server: ServerOption = None,
    trust_remote_code: RemoteCodeOption = False,
    replay: Annotated[
        bool, Option("--replay", help="On the serving machine: time each choice and the default again.")
    ] = False,
    store: Annotated[
        str | None, Option("--store", metavar="ID|all", help="Judge only stores of compiled kernels.")
    ] = None,
    at: Annotated[
        str | None,
        Option("--at", metavar="PATH", help="The path where the server will see the folder of stores."),
    ] = None,
    fleet: Annotated[
        Path | None,
        Option("--fleet", metavar="FILE.JSONL", help="A file with each node's `sgl-tune env --format json`."),
    ] = None,
    cold_start: Annotated[
        Path | None,
        Option("--cold-start", metavar="REPORT.JSON", help="With --fleet: a cold start's start-report."),
    ] = None,
    lock: LockOption = None,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 on warnings too.")] = False,
    format: FindingsFormatOption = FindingsFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Predict what the next server start does with every cache file, without a GPU.

    If SGLang can be asked and a deployment is given, its own start on a simulated GPU (the ghost) reads the
    files, and exit code 0 means that the start would tune nothing. Without a server, files are judged by
    themselves or against the runtime core's plan, and the last line says that no server was asked.

    --replay needs the GPU, except for a cache tuned on a CPU. It names the choices that a new driver or other
    clocks made stale.

    With a deployment (SGLang's flags, a server command after --, -f, or sgl-tune.toml), missing files and
    entries are listed too. Stores of compiled kernels in PATH are also judged, by their libraries' own rules;
    with --store, only they are. quiet prints the files that are missing or not used, github prints
    annotations for a workflow. docs/findings.md explains every finding. --fleet judges many nodes at once.

    Example: sgl-tune verify --target env.json -- python -m sglang.launch_server --model-path M --tp 8

    Example: sgl-tune verify --fleet nodes.jsonl -- python -m sglang.launch_server --model-path M --tp 8
    """
    out = Output(sink(format, quiet))
    paths, command = split_positionals(arguments or ())
    if len(paths) > 1:
        raise UsageError(f"{' '.join(paths)}: not one path or key", "one, or python -m sglang.launch_server")
    by = asked_by(flags, file, command, server, trust_remote_code, "--replay" if replay else None)
    asked = VerifyOptions(by, paths[0] if paths else None)
    one = {"--store": store, "--at": at, "--as-user": as_user, "--replay": replay, "a path": asked.path}
    if fleet is not None:
        from sgl_tune.fleet.command import FleetOptions, verify_fleet

        beside = tuple(name for name, given in one.items() if given)
        options = FleetOptions(fleet, target, cold_start, strict, format, beside, to_paste("warm", by))
        raise Ended(0 if verify_fleet(out, options, asked) else 1)
    if cold_start is not None or format in _OF_FLEETS:
        what = "--cold-start" if cold_start is not None else f"--format {format.value}"
        raise UsageError(f"{what} goes with --fleet", "sgl-tune verify --help")
    if lock is not None:
        from sgl_tune.pins.check import show_held

        raise Ended(0 if show_held(out, lock, asked.path or flags.target.cache_dir) else 1)
    if is_bundle(asked.path) and (as_user or replay):
        flag = "--as-user" if as_user else "--replay"
        raise UsageError(f"{flag} is about files where a server finds them", "unpack the bundle first")
    machine = read_target(target) if target else target_here()
    with _folder(out, asked.path, at) as (path, place):
        user = find_user(as_user) if as_user else None
        told = Told(asked._replace(path=path), machine, user, store, place)
        found = judged(out, told, replay, strict)
        _show(out, machine, found, format)
    raise Ended(0 if found.ok else 1)


def _folder(out: Output, path: str | None, at: str | None) -> _Folder:
    """Yield path and place unchanged, but for a bundle yield a temporary folder with its contents."""
    if path is None or not is_bundle(path):
        return nullcontext((path, at))
    from sgl_tune.ship.arrival import as_folder

    return as_folder(out, path, at)


class Told(NamedTuple):
    """What to judge, for which server. `at`: the folder's path for that server. `verb`: who asks."""

    asked: VerifyOptions
    machine: Target
    user: User | None
    store: str | None
    at: str | None
    verb: str = "verify"


class Judged(NamedTuple):
    """The result of a verify. `verdict`: the last line that is printed."""

    report: VerifyReport
    stores: Sequence[StoreReport]
    replayed: Sequence[ReplayedCache] | None
    answer: "Served | None"
    verdict: str
    ok: bool


def judged(out: Output, told: Told, replay: bool = False, strict: bool = False) -> Judged:
    (asked, machine, user, store, at, verb), away = told, None
    by = asked.by
    if asked.path is None and by.command and not by.flags.target.cache_dir:
        from sgl_tune.verify.away import NOWHERE, away_of

        away = away_of(by.command, verb, by.core)
        nowhere = replace(by, flags=by.flags.changed(cache_dir=NOWHERE))
        told = told._replace(asked=asked._replace(by=nowhere)) if away else told
    stores = verify_stores(_stores(out, asked, store), machine_of(by.flags, machine, user, at))
    if store_asked_for(store):
        scope, answer = Scope((), machine), None
    else:
        scope, answer = _scope(out, told, stores)
    for doubt in scope.warnings:
        out.warn(doubt)
    for note in scope.notes:
        out.note(note)
    report = predict(scope.checked, scope.target, user)
    report = report._replace(findings=(*scope.findings, *report.findings))
    report = away.judged(report) if away else report
    report = report.remedied(WARM, to_paste("warm", by)) if asked.names_a_deployment else report
    replayed = _replay_all(scope, report, out) if replay else []
    timings = [found for one in replayed for found in one.findings]
    report = with_stores(report._replace(findings=(*report.findings, *timings)), stores, scope.target)
    ok = report.ok(strict)
    doubts = () if scope.plans else scope.warnings
    says = answer.says if answer else None
    of_stores = stores_line(stores) if stores else None
    held = replay_line(replayed) if replayed else None
    verdict = verdict_line(report, scope.plans, ok, of_stores, doubts, says, held)
    return Judged(report, stores, replayed if replay else None, answer, verdict, ok)


def _show(out: Output, machine: Target, found: Judged, format: FindingsFormat) -> None:
    report, stores, replayed, answer, verdict, ok = found
    out.result(
        {
            "ok": ok,
            "verdict": verdict,
            "target": {"from": machine.origin, "metadata": machine.metadata},
            "server": answer.to_json() if answer else None,
            **report.to_json(),
            "replay": None if replayed is None else [one.to_json() for one in replayed],
        },
        human=lambda: show_report(out, report, stores, replayed or (), verdict, ok),
        quiet=github_lines(report) if format is FindingsFormat.github else _unused(found),
    )


def _scope(out: Output, told: Told, stores: Sequence[StoreReport]) -> "tuple[Scope, Served | None]":
    """Return the files to judge: as a server answers if one can be asked, else as the runtime core plans."""
    asked = told.asked._replace(stores=frozenset(one.stored.path for one in stores))
    if asked.names_a_deployment or asked.by.server is not None:
        from sgl_tune.commands.verify_served import ask_server

        found = ask_server(out, asked, told.machine)
        if found is not None:
            return found[1], found[0]
    return scope_of(asked, told.machine), None


def _stores(out: Output, asked: VerifyOptions, only: str | None) -> list[Stored]:
    """Return the stores that --store names, or those in the given folder."""
    if store_asked_for(only):
        from sgl_tune.stores.describe import stores_meant

        cache_dir = asked.by.flags.target.cache_dir
        return stores_meant(out, asked.path, only, Path(cache_dir) if cache_dir else None)[0]
    if only == TACTICS or asked.path is None or not Path(asked.path).is_dir() or asked.names_a_deployment:
        return []
    return stores_below(out, Path(asked.path))


def _unused(found: Judged) -> Iterable[str]:
    """Return the files that the start will not use or not find; if there are none, what else is bad."""
    files = [str(file.path) for file in found.report.files if file.verdict in _UNUSED]
    return files if files or found.ok else [found.verdict]


def _replay_all(scope: Scope, report: VerifyReport, out: Output) -> list[ReplayedCache]:
    """Replay one loadable file of each cache; one is enough, since the files of a group are equal."""
    from sgl_tune.verify.planned import plan_of
    from sgl_tune.warm.replaying import replay as replay_entries

    used = {file.path for file in report.files if file.verdict in (Verdict.HIT, Verdict.PARTIAL)}
    found = []
    for checked in scope.checked:
        paths = [file.path for file in checked.cache.files if file.path in used]
        plan = plan_of(checked, scope.plans) if paths and checked.cache.layout == "sglang" else None
        if plan is not None:
            with out.progress(f"replaying {checked.cache.key}") as progress:
                key = str(checked.cache.key)
                timed = replay_entries(plan, key, paths[0], _PATIENCE, lambda: progress.advance(0))
            found.append(judge_replay(paths[0], timed, checked.manifest, scope.target))
    if not found:
        raise UsageError(
            "nothing to replay: no loadable file belongs to a known deployment",
            "give the deployment, or a cache that `sgl-tune warm` wrote",
        )
    return found
