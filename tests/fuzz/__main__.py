"""`python -m tests.fuzz --parser NAME --count 20000 --seed N`: what breaks a parser, or takes it too long."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.engine import distinct, fuzz, make_input
from tests.fuzz.parser import load_parser, parser_names


def main() -> int:
    asked = _arguments()
    names = parser_names() if asked.parser == "all" else [asked.parser]
    if asked.only is not None:
        _read_one(names[0], asked.seed, asked.only)
        return 0
    bad = 0
    for name in names:
        begun = time.monotonic()
        found = distinct(list(fuzz(name, asked.count, asked.seed, asked.workers)))
        bad += len(found)
        total = sum(map(len, found.values()))
        seconds = time.monotonic() - begun
        print(f"{name}: {asked.count} inputs, seed {asked.seed}, {seconds:.0f} s, {total} failed", flush=True)
        for what, findings in found.items():
            first = findings[0]
            said = f"\n    {first.said}" if first.said else ""
            print(f"  {len(findings)} x {what}{said}\n    --only {first.number}: {first.input}", flush=True)
    return 1 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--parser", choices=[*parser_names(), "all"], default="all")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="Read one input here, with its traceback.")
    return parser.parse_args()


def _read_one(name: str, seed: int, number: int) -> None:
    import os
    import tempfile

    parser = load_parser(name)
    made = make_input(name, parser, seed, number)
    os.environ["SGL_TUNE_TRACEBACK"] = "1"
    with tempfile.TemporaryDirectory(prefix="sgl-tune-fuzz-") as folder:
        os.chdir(folder)
        print(repr(made)[:2000])
        parser.read(made, Path(folder))
        print("nothing is wrong with it")


if __name__ == "__main__":
    sys.exit(main())
