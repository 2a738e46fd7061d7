"""Commands with one mistake each, and right ones: SGLang's own parser says which it refuses, we answer too.

python -m tests.oracle.mistakes --seed 7 --count 600 --releases 0.5.12,0.5.17,0.5.23 [--record]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.server.flags import CommandLine, Flag, Refused, flags_of
from runtime.server.releases import release_named
from sgl_tune.deployment.server_command import parse_server_command
from sgl_tune.errors import UsageError
from tests.oracle.grammar import ask
from tests.oracle.lines import WRONG, Line, right_part
from tests.oracle.wheels import WORK

RECORDED = Path(__file__).parent / "recorded/mistakes.jsonl.gz"
SIZES = {"int": ("1", "2", "8"), "float": ("0.5", "0.85"), "human_readable_int": ("4096", "4k", "8Ki")}
START = ["python3", "-m", "sglang.launch_server", "--model-path", "org/model"]
RELEASES = "0.5.12,0.5.17,0.5.23"


@dataclass(frozen=True)
class Case:
    """`meant`: the flag's names, where one was mistyped. A right command has no mistake."""

    release: str
    mistake: str
    words: list[str]
    meant: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    case: Case
    refused_there: bool
    refused_here: str | None
    suggested: tuple[str, ...]

    @property
    def agree(self) -> bool:
        return self.refused_there == (self.refused_here is not None)

    @property
    def found(self) -> bool:
        return bool(self.suggested) and self.suggested[0] in self.case.meant


def random_cases(releases: Sequence[str], seed: int, count: int) -> list[Case]:
    """`count` with a mistake, and as many right ones."""
    chance = random.Random(f"mistakes {seed}")
    lines = [flags_of(releases[i % len(releases)]) for i in range(count)]
    wrong = [
        _case(chance, line, list(MISTAKES)[i // len(releases) % len(MISTAKES)])
        for i, line in enumerate(lines)
    ]
    return wrong + [_case(chance, line, "none") for line in lines]


def _case(chance: random.Random, line: CommandLine, mistake: str) -> Case:
    usable = [
        flag for flag in line.flags if not flag.deprecated and flag.field not in ("model_path", "config")
    ]
    flags = chance.sample(usable, 5)
    if mistake == "none":
        return Case(line.release, mistake, _joined(chance, [_plausible(chance, flag) for flag in flags]))
    possible = [flag for flag in usable if FITS.get(mistake, _any)(flag)]
    flag = chance.choice(possible)
    part = MISTAKES[mistake](chance, flag, line)
    others = [right_part(chance, other) for other in flags[1:] if other.field != flag.field]
    typed = part[0].partition("=")[0]
    meant = flag.names if mistake.startswith("a letter") and typed not in line.by_name else ()
    return Case(line.release, mistake, _joined(chance, [part, *others]), meant)


def _plausible(chance: random.Random, flag: Flag) -> Line:
    """A size that a server can have: what the parser takes and no server starts with is no right command."""
    if flag.type in SIZES and not flag.choices and flag.nargs is None:
        return [chance.choice(flag.names), chance.choice(SIZES[flag.type])]
    return right_part(chance, flag)


def _joined(chance: random.Random, parts: list[Line]) -> list[str]:
    chance.shuffle(parts)
    return [word for part in parts for word in part]


def _any(flag: Flag) -> bool:
    return True


def _letter(change: Callable[[str, int], str]) -> Callable[[random.Random, Flag, CommandLine], Line]:
    def made(chance: random.Random, flag: Flag, line: CommandLine) -> Line:
        part = right_part(chance, flag)
        name, equals, value = part[0].partition("=")
        slips = {change(name, at) for at in range(2, len(name) - 1)} - {name}
        return [chance.choice(sorted(slips)) + equals + value, *part[1:]]

    return made


def _wrong_type(chance: random.Random, flag: Flag, line: CommandLine) -> Line:
    return [flag.name, chance.choice(WRONG[flag.type])]


def _wrong_choice(chance: random.Random, flag: Flag, line: CommandLine) -> Line:
    assert flag.choices is not None
    return [flag.name, f"{chance.choice(flag.choices)}x"]


def _wrong_arity(chance: random.Random, flag: Flag, line: CommandLine) -> Line:
    """A switch with a value, or a value that is missing, or one too many."""
    if not flag.takes_value:
        return [f"{flag.name}=true"]
    if flag.nargs == "?" or (flag.nargs is None and chance.random() < 0.5):
        return [*right_part(chance, flag), "one-more"]
    return [flag.name]


def _ambiguous(chance: random.Random, flag: Flag, line: CommandLine) -> Line:
    """The longest beginnings that several flags share; argparse takes a flag's whole name for itself."""
    part = right_part(chance, flag)
    name, equals, value = part[0].partition("=")
    begins = [name[:end] for end in range(4, len(name)) if _readings(name[:end], line) > 1]
    return [(begins or [name[:3]])[-1] + equals + value, *part[1:]]


def _readings(begin: str, line: CommandLine) -> int:
    return 1 if begin in line.by_name else sum(name.startswith(begin) for name in line.by_name)


def _swapped(name: str, at: int) -> str:
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


MISTAKES: dict[str, Callable[[random.Random, Flag, CommandLine], Line]] = {
    "a letter swapped": _letter(_swapped),
    "a letter dropped": _letter(lambda name, at: name[:at] + name[at + 1 :]),
    "a letter doubled": _letter(lambda name, at: name[:at] + name[at] + name[at:]),
    "a wrong type": _wrong_type,
    "a wrong choice": _wrong_choice,
    "a wrong arity": _wrong_arity,
    "an ambiguous beginning": _ambiguous,
}
FITS: dict[str, Callable[[Flag], bool]] = {
    "a wrong type": lambda flag: flag.takes_value and flag.type in WRONG and not flag.choices,
    "a wrong choice": lambda flag: flag.takes_value and bool(flag.choices) and flag.type == "str",
    "a wrong arity": lambda flag: flag.nargs != "*",
}


def judged(case: Case, theirs: dict[str, Any]) -> Judged:
    try:
        parse_server_command([*START, *case.words], release_named(case.release).release)
    except UsageError as error:
        cause = error.__cause__
        suggested = cause.suggestions if isinstance(cause, Refused) else ()
        return Judged(case, "refused" in theirs, error.message, suggested)
    return Judged(case, "refused" in theirs, None, ())


def page(found: Iterable[Judged]) -> Iterator[str]:
    found = list(found)
    for mistake in (*MISTAKES, "none"):
        mine = [one for one in found if one.case.mistake == mistake]
        counts = Counter((one.refused_there, one.refused_here is not None) for one in mine)
        both, none = counts[True, True], counts[False, False]
        alone = f"{counts[True, False]} by SGLang alone, {counts[False, True]} by us alone"
        yield f"{mistake:<24}{len(mine):>4}: refused {both} by both, {none} by none, {alone}"
    typed = [one for one in found if one.case.meant and one.refused_there]
    share = sum(one.found for one in typed) / max(1, len(typed))
    yield f"mistyped flags: {len(typed)}, the one that was meant is suggested first in {share:.1%}"
    yield from (
        f"  {one.case.release} {one.case.words}: {one.refused_here}" for one in found if not one.agree
    )
    yield from (f"  {one.case.words} -> {one.suggested[:2]}" for one in typed if not one.found)


def asked_of_the_wheels(cases: Sequence[Case], work: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    for release in dict.fromkeys(case.release for case in cases):
        mine = [case for case in cases if case.release == release]
        yield from zip(mine, ask(release, [START[3:] + case.words for case in mine], work), strict=True)


def recorded() -> Iterator[tuple[Case, dict[str, Any]]]:
    with gzip.open(RECORDED, "rt") as file:
        for line in file:
            case, theirs = json.loads(line)
            yield Case(**{**case, "meant": tuple(case["meant"])}), theirs


def record(pairs: Iterable[tuple[Case, dict[str, Any]]]) -> None:
    kept = [
        [asdict(case), {"refused": theirs["refused"]} if "refused" in theirs else {}]
        for case, theirs in pairs
    ]
    RECORDED.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in kept).encode(), mtime=0))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=600)
    options.add_argument("--releases", default=RELEASES)
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--record", action="store_true", help="keep SGLang's answers for the tests")
    asked = options.parse_args()
    cases = random_cases(asked.releases.split(","), asked.seed, asked.count)
    pairs = list(asked_of_the_wheels(cases, asked.work.absolute()))
    print(*page(judged(*pair) for pair in pairs), sep="\n")
    if asked.record:
        record(pairs)


if __name__ == "__main__":
    main()
