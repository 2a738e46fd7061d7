"""The measured starts again, on GPUs that are not there: one table, and 1 where the ghost is wrong.

    python -m tests.ghost.judge                      # all 92, in the referee's environment: `make ghost`
    python -m tests.ghost.judge first/next --gpus 1  # some of them
    python -m tests.ghost.judge --python PATH --observe

A start is judged by a table of what lies outside torch that neither it nor a start of its model took part in.
All of them together write benchmarks/results/ghost_judged.json and docs/accuracy.md.
`--observe` writes what the ghost counted to benchmarks/results/ghost_outside.json: the table is fitted to it.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Queue
from threading import Thread

from benchmarks.real_starts.page import PAGE, page
from runtime.ghost.gpus import gpus
from runtime.ghost.halves import halves_for
from runtime.ghost.outside import PEERS, Outside, table
from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.server_process import Request, ServerProcess, ghost_for
from runtime.sglang.tactics import Tactics
from sgl_tune.asking.kept import cache_folder
from tests.ghost import fit_outside
from tests.ghost.judge_table import counts_of, row_of, write_judged
from tests.ghost.real_starts import RealStart, later_starts, real_starts
from tests.ghost.verdicts import Verdict, verdict

GPU, CUDA = "h200", 13
HALVES, MODULE = cache_folder(), "fused_moe_90"


@dataclass(frozen=True)
class Place:
    """Where starts run: a Python with SGLang, its packages, and a folder for everything that is made."""

    python: Path
    packages: Path
    work: Path
    halves: dict[str, str] = field(default_factory=dict)
    fold: bool = False


@dataclass(frozen=True)
class Ran:
    start: RealStart
    record: Record
    observed: dict[str, fit_outside.Counts]


def run_all(
    starts: Sequence[RealStart], tables: dict[str, Outside], place: Place, jobs: int
) -> Iterator[Ran]:
    """Run each start on as many GPUs as it was measured on; yield results in the order of their ends."""
    waiting = deque(sorted(starts, key=lambda start: start.gpus))
    ended: Queue[Ran | BaseException | None] = Queue()
    for job in range(jobs):
        take = waiting.popleft if job % 2 == 0 else waiting.pop  # one number of GPUs per process, mostly
        Thread(target=_work, args=(job, take, tables, place, ended), daemon=True).start()
    working = jobs
    while working:
        one = ended.get()
        if isinstance(one, BaseException):
            raise one
        if one is None:
            working -= 1
        else:
            yield one


def _work(
    job: int,
    take: Callable[[], RealStart],
    tables: dict[str, Outside],
    place: Place,
    ended: Queue[Ran | BaseException | None],
) -> None:
    """Run starts one after the other, in a server process with this number of GPUs."""
    held, gpus_held = ExitStack(), 0
    try:
        with held:
            while True:
                try:
                    start = take()
                except IndexError:
                    break
                work = place.work / f"{job}-gpus-{start.gpus}"
                if start.gpus != gpus_held:
                    held.close()
                    ghost = ghost_for(
                        [place.packages], place.work, gpus()[GPU], start.gpus, halves=place.halves
                    )
                    server = held.enter_context(
                        ServerProcess(place.python, work, ghost, {}, kernels=place.work / "kernels")
                    )
                    gpus_held = start.gpus
                _forget_tactics(work)
                ran = _run(server, start, tables[start.name], place.fold)
                if start.warm:
                    ran = _run(server, start, tables[start.name], place.fold, _left(work))
                ended.put(ran)
    except BaseException as error:
        ended.put(error)
    ended.put(None)


def _run(
    server: ServerProcess, start: RealStart, numbers: Outside, fold: bool, tactics: Tactics | None = None
) -> Ran:
    events: list[Event] = []
    name = start.name.replace("/", "-")
    outside = {"numbers": numbers.text()}
    request = Request(start.argv, outside=outside, name=name, compiled=start.compiled, tactics=tactics)
    record = server.run(replace(request, fold=fold), say=events.append)
    counts = {event["phase"]: event for event in events if event["event"] == "outside"}
    observed = {}
    for phase in record.phases:
        if counted := counts.get(phase.name):
            named = {key: value for key, value in counted.items() if isinstance(value, int)}
            observed.setdefault(phase.name, {**named, "own": phase.outside - named.pop("charged")})
    charged = numbers.numbers.get(f"{PEERS}{start.gpus}")
    if (beyond := fit_outside.fullest(start, record, charged.bytes if charged else 0)) is not None:
        observed["kv pool"][fit_outside.FULLEST] = beyond
    return Ran(start, record, observed)


def _left(work: Path) -> Tactics:
    """Return the tactics that the last start found, for the next one."""
    root = work / "home" / ".cache" / "sglang"
    files = {str(file.relative_to(root)): file.read_bytes() for file in root.glob("flashinfer/**/*.json")}
    assert files, f"no tactics are below {root}"
    return Tactics(files)


def _forget_tactics(work: Path) -> None:
    """Forget tactics, because every measured start except the warm ones tuned from nothing."""
    shutil.rmtree(work / "home" / ".cache" / "sglang", ignore_errors=True)


def tables_for(starts: Sequence[RealStart], known: Sequence[fit_outside.Seen]) -> dict[str, Outside]:
    """Return a table for each start, fitted to the starts of other models."""
    return {start.name: fit_outside.fitted(fit_outside.without(known, start), table()) for start in starts}


def known_starts() -> list[fit_outside.Seen]:
    if not fit_outside.OBSERVED.exists():
        return []
    observed = fit_outside.observations()
    starts = (*real_starts(), *later_starts())
    return [fit_outside.seen(start, observed[start.name]) for start in starts if start.name in observed]


def place_of(asked: argparse.Namespace, work: Path) -> Place:
    if asked.python is None:
        from tests.ghost.environments import REFEREE, python_of

        python = python_of(REFEREE)
    else:
        python = asked.python
    packages = asked.packages or next(python.parents[1].glob("lib/python3*/site-packages"))
    halves = halves_for(packages, gpus()[GPU].arch, cuda=CUDA, root=asked.halves, environment={})
    return Place(python, packages, work, halves, asked.fold)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.ghost.judge", description=__doc__)
    parser.add_argument("starts", nargs="*", help="ROUND/NAME; all where none is named")
    parser.add_argument("--gpus", type=int, choices=(1, 2, 4))
    parser.add_argument("--python", type=Path, help="instead of the referee's environment")
    parser.add_argument("--packages", type=Path, help="the site-packages of that Python")
    parser.add_argument("--halves", type=Path, default=HALVES, help="folder of `sgl-tune server modules`")
    parser.add_argument("--work", type=Path, help="keep logs and records here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="starts at once")
    parser.add_argument("--observe", action="store_true")
    parser.add_argument("--fold", action="store_true", help="fold equal layers, as mem-report does")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    asked = arguments(sys.argv[1:] if argv is None else argv)
    measured = (*real_starts(), *(later_starts() if asked.observe and asked.starts else ()))
    starts = [start for start in measured if asked.gpus in (None, start.gpus)]
    if unknown := set(asked.starts) - {start.name for start in starts}:
        print(f"no such start: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if asked.starts:
        starts = [start for start in starts if start.name in asked.starts]
    known = known_starts()
    tables = {start.name: table() for start in starts} if asked.observe else tables_for(starts, known)
    with tempfile.TemporaryDirectory(prefix="ghost-judge-") as folder:
        work = asked.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        ran, place = [], place_of(asked, work)
        if MODULE not in place.halves:
            print(f"{MODULE} is not here, so starts on CUTLASS are not exact, and one ends otherwise:")
            print(f"  sgl-tune server modules --server {place.python} --from {MODULE}.so", flush=True)
        for one in run_all(starts, tables, place, asked.jobs):
            (work / f"{one.start.name.replace('/', '-')}.json").write_text(one.record.to_json())
            print(row_of(verdict(one.start, one.record)), flush=True)
            ran.append(one)
    if asked.observe:
        before = fit_outside.observations() if fit_outside.OBSERVED.exists() else {}
        fit_outside.write_observations({**before, **{one.start.name: one.observed for one in ran}})
    verdicts: list[Verdict] = [verdict(one.start, one.record) for one in ran]
    print(counts_of(verdicts))
    if len(verdicts) == len(tuple(real_starts())) and not asked.observe:
        records = {one.start.name: one.record for one in ran}
        doubts = {name: numbers.doubt_of(records[name].counted) for name, numbers in tables.items()}
        write_judged(verdicts, doubts)
        PAGE.write_text(page())
    return 0 if all(one.good for one in verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
