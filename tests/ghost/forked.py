"""A start forked from a process that has run others is the start of a fresh process, byte for byte.
A start whose equal layers are folded is the start that runs each of them.

    python -m tests.ghost.forked              # ten starts on one GPU, in two orders
    python -m tests.ghost.forked first/next   # others
    python -m tests.ghost.forked --folded     # every measured start, folded and not: an hour of two cores

Exit status 1 where two records differ.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from runtime.ghost.gpus import gpus
from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.sglang.server_process import Request, ServerProcess, ghost_for
from sgl_tune.asking.kept import cache_folder
from tests.ghost.judge import GPU, Place, arguments, place_of
from tests.ghost.real_starts import RealStart, real_starts

CHEAP = (
    *("first/llama-long-chunk-dies", "second/llama-long-chunk-dies", "second/fit-llama"),
    *("first/qwen30-cutlass-dies", "second/qwen30-no-graphs", "second/qwen30-low-dies", "second/qwen32-dies"),
    *("first/v2-lite-dies", "second/v2-lite-dies", "second/next-mtp-dies"),
)
COMPARED = ("phases", "ending", "sizes", "counted", "held", "inexact", "keys", "kernels")


def facts(record: Record) -> dict[str, Any]:
    """Return all facts of a record, without seconds, paths, ports and addresses of C++ stacks."""
    data = {name: value for name, value in asdict(record).items() if name in COMPARED}
    for phase in (*data["phases"], data["ending"]["at"]):
        if phase is not None:
            del phase["seconds"]
    data["ending"]["text"] = (data["ending"]["text"] or "").partition("\nException raised from")[0]
    return data


def differing(one: Record, other: Record) -> Iterator[str]:
    """Return the names of facts in which two records differ; of phases, of each reading."""
    first, second = facts(one), facts(other)
    for name in COMPARED:
        if name != "phases" and first[name] != second[name]:
            yield name
    if [phase["name"] for phase in first["phases"]] != [phase["name"] for phase in second["phases"]]:
        yield "the phases' names"
        return
    for here, there in zip(first["phases"], second["phases"], strict=True):
        for reading, value in here.items():
            if value != there[reading]:
                yield f"{here['name']}: {reading} {value} and {there[reading]}"


def run(starts: Sequence[RealStart], place: Place, name: str, *folds: bool) -> Iterator[Record]:
    """Run starts in one process, each forked after the other. Each tunes from nothing."""
    work, outside = place.work / name, {"numbers": table().text()}
    ghost = ghost_for([place.packages], cache_folder(), gpus()[GPU], starts[0].gpus, halves=place.halves)
    with ServerProcess(place.python, work, ghost, {}) as server:
        for start in starts:
            for fold in folds or (False,):
                shutil.rmtree(work / "home" / ".cache" / "sglang", ignore_errors=True)
                named = start.name.replace("/", "-")
                asked = Request(start.argv, outside=outside, name=named, compiled=start.compiled, fold=fold)
                yield server.run(asked)


def fold(starts: Sequence[RealStart], place: Place) -> bool:
    """Print what folding changes in each start, and its CPU seconds without and with it."""
    equal = True
    for devices, alike in groupby(sorted(starts, key=attrgetter("gpus")), attrgetter("gpus")):
        named = list(alike)
        records = run(named, place, f"on-{devices}", False, True)
        for start, plain, folded in zip(named, records, records, strict=False):
            found = "; ".join(differing(plain, folded))
            equal = equal and not found
            costs = f"{plain.cost.cpu:6.1f} {folded.cost.cpu:6.1f}"
            print(f"{start.name:34s} {costs}  {found or 'equal'}", flush=True)
    return equal


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ghost.forked", description=__doc__)
    parser.add_argument("starts", nargs="*", help="ROUND/NAME; on one GPU unless --folded is given")
    parser.add_argument("--folded", action="store_true", help="compare with folded starts")
    asked = parser.parse_args(sys.argv[1:] if argv is None else argv)
    known = [start for start in real_starts() if asked.folded or start.gpus == 1]
    wanted = asked.starts or (CHEAP if not asked.folded else [start.name for start in known])
    starts = [start for start in known if start.name in wanted]
    if len(starts) != len(wanted):
        print(f"no such start among {', '.join(wanted)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="ghost-forked-") as folder:
        place = place_of(arguments([]), Path(folder))
        if asked.folded:
            return 0 if fold(starts, place) else 1
        orders = {"forwards": starts, "backwards": starts[::-1]}
        warm = {
            order: dict(zip([one.name for one in named], run(named, place, order), strict=True))
            for order, named in orders.items()
        }
        equal = True
        for place_in_order, start in enumerate(starts):
            (fresh,) = run([start], place, f"fresh-{place_in_order}")
            for order in orders:
                found = list(differing(fresh, warm[order][start.name]))
                equal = equal and not found
                print(f"{start.name:34s} {order:10s} {'; '.join(found) or 'equal'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
