"""A round of starts.toml on the ghost, before it runs on GPUs: what each start takes, and how it ends.

    PYTHONPATH=. python benchmarks/real_starts/ghost_round.py SERVER_PYTHON PACKAGES ROUND

It writes results/ghost_predicted_ROUND.json. Nothing is fitted to these starts.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.real_starts.referee import RANDOM_WEIGHTS
from benchmarks.record import write_record
from runtime.ghost.gpus import gpus
from runtime.ghost.halves import halves_for
from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.sglang.asking import Asked, Asker
from runtime.sglang.server_process import Request
from runtime.toml import tomllib
from sgl_tune.asking.kept import cache_folder

HERE = Path(__file__).resolve().parent
CACHE = cache_folder()
SAMPLING = RANDOM_WEIGHTS[RANDOM_WEIGHTS.index("--sampling-backend") :][:2]


def main() -> None:
    python, packages, of_round = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    gpu = gpus()["h200"]
    halves = halves_for(packages, gpu.arch, cuda=13, root=CACHE, environment={})
    asked = Asked(python, (packages,), gpu, CACHE, halves=halves)
    starts = []
    with Asker(asked) as asker:
        for name, count, argv in commands(of_round):
            record = asker.ask(Request(tuple(argv), outside={"numbers": table().text()}))
            starts.append({"name": name, "gpus": count, "argv": below_root(argv), **told(record)})
            print(name, record.ending.how, record.ending.phase or "", record.cost.cpu, flush=True)
    write_record(f"ghost_predicted_{of_round}", {"starts": starts})


def commands(of_round: str) -> list[tuple[str, int, list[str]]]:
    given = tomllib.loads((HERE / "starts.toml").read_text())
    found = []
    for count, starts in given[of_round].items():
        for name, text in starts.items():
            model, *flags = shlex.split(text)
            argv = ["--model-path", str(HERE / "models" / model), *shlex.split(given["common"]), *flags]
            found.append((name, int(count), [*argv, *SAMPLING]))
    return found


def below_root(argv: list[str]) -> list[str]:
    return [word.removeprefix(f"{HERE.parents[1]}/") for word in argv]


def told(record: Record) -> dict[str, Any]:
    names = ("peak", "allocated", "outside", "least_free")
    phases = {p.name: {name: getattr(p, name) for name in names} for p in record.phases}
    return {
        "ending": record.ending.how,
        "died_in": record.ending.phase,
        "error": (record.ending.text or "")[:400] or None,
        "sizes": asdict(record.sizes) if record.sizes else None,
        "phases": phases,
        "doubt_outside": table().doubt_of(record.counted),
        "inexact": [f"{one.kind} {one.name}" for one in record.inexact],
    }


if __name__ == "__main__":
    main()
