"""Our reading of command lines against a release's own.

python -m tests.oracle.grammar --seed 3 --count 500 --releases 0.5.17,0.5.23 [--add]
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.server.flags import CommandLine, Refused, flags_of, parse
from runtime.server.releases import RELEASES
from tests.oracle.inside import run_inside
from tests.oracle.lines import random_lines
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/command_lines.jsonl.gz"


@dataclass(frozen=True)
class Difference:
    release: str
    words: list[str]
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.release} {self.words}\n  ours:   {self.ours}\n  theirs: {self.theirs}"


def our_answer(command_line: CommandLine, words: list[str]) -> dict[str, Any]:
    """As tests.oracle.read_lines answers: what is not its default."""
    try:
        values = parse(command_line, words).values
    except Refused as refusal:
        return {"refused": refusal.reason}
    defaults = command_line.defaults
    return {name: value for name, value in values.items() if value != defaults.get(name)}


def agree(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    if "refused" in ours and "refused" in theirs:
        return _kind(ours["refused"]) == _kind(theirs["refused"])
    return json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def _kind(reason: str) -> str:
    """Whom it blames. The words of a value's refusal are each Python's and each type's own."""
    if reason.startswith("argument "):
        blamed, _, why = reason.partition(": ")
        return f"{blamed}: {why}" if why.startswith(("expected", "ignored")) else blamed
    return {"AssertionError": "argument --lora-paths", "JSONDecodeError": "argument --lora-paths"}.get(
        reason, reason
    )


def differences(release: str, lines: list[list[str]], answers: list[dict[str, Any]]) -> Iterator[Difference]:
    command_line = flags_of(release)
    for words, theirs in zip(lines, answers, strict=True):
        ours = our_answer(command_line, words)
        if not agree(ours, theirs):
            yield Difference(release, words, ours, theirs)


def recorded() -> Iterator[tuple[str, list[list[str]], list[dict[str, Any]]]]:
    with gzip.open(RECORDED, "rt") as file:
        for line in file:
            known = json.loads(line)
            yield known["release"], known["lines"], known["answers"]


def add(kept: list[dict[str, Any]]) -> None:
    """To those of the other releases."""
    new = {one["release"]: one for one in kept}
    others = [dict(zip(("release", "lines", "answers"), known, strict=True)) for known in recorded()]
    all_of_them = sorted(
        [one for one in others if one["release"] not in new] + kept, key=lambda one: one["release"]
    )
    RECORDED.write_bytes(gzip.compress("".join(json.dumps(k) + "\n" for k in all_of_them).encode(), mtime=0))


def ask(release: str, lines: list[list[str]], work: Path) -> list[dict[str, Any]]:
    texts = [json.dumps(words) for words in lines]
    return list(run_inside("read_lines", wheel_of(release, work), "H200", work, texts, deadline=600))


def compared(release: str, seed: int, count: int, work: Path) -> dict[str, Any]:
    """Prints how many lines we read otherwise than the release, and gives back what it answered."""
    lines = random_lines(flags_of(release), seed, count)
    answers = ask(release, lines, work)
    found = list(differences(release, lines, answers))
    refused = sum("refused" in answer for answer in answers)
    print(f"{release}: {count} command lines, {refused} refused, {len(found)} differences", flush=True)
    for difference in found[:10]:
        print(difference)
    return {"release": release, "lines": lines, "answers": answers}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=300, help="lines a release")
    options.add_argument("--releases", default=",".join(row.version for row in RELEASES))
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--add", action="store_true", help="keep these releases' answers for the tests")
    asked = options.parse_args()
    kept = [compared(release, asked.seed, asked.count, asked.work) for release in asked.releases.split(",")]
    if asked.add:
        add(kept)


if __name__ == "__main__":
    main()
