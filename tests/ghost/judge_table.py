"""The judge's table: a row of text per start, then the counts; and the same as a kept result."""

from collections.abc import Mapping, Sequence

from benchmarks.real_starts.page import JUDGED
from benchmarks.record import write_record
from tests.ghost.verdicts import MIB, Difference, Verdict, worst


def row_of(one: Verdict) -> str:
    alike = "" if one.ends_alike else "  WRONG ENDING"
    lacks = f"  lacks {', '.join(one.lacks)}" if one.lacks else ""
    bad = "" if one.good or not one.ends_alike else "  OUT OF ITS LIMITS"
    warm = ", warm cache" if one.start.warm or one.start.compiled else ""
    tokens = "-" if one.tokens is None else f"{one.tokens:+.4%}"
    return (
        f"{one.start.name:34s} {one.start.gpus} | {one.start.ending:24s} | {one.ending:24s} | "
        f"tokens {tokens:>9s} | peak {_named(worst(one.peaks)):>26s} | "
        f"outside {_named(worst(one.outside)):>26s} | {one.because}{warm}{lacks}{alike}{bad}"
    )


def _named(one: Difference | None) -> str:
    return "-" if one is None else f"{one.bytes / MIB:+.2f} MiB {one.phase}"


def counts_of(verdicts: Sequence[Verdict]) -> str:
    lines = []
    for name, chosen in (
        ("one GPU", [one for one in verdicts if one.start.gpus == 1]),
        ("two and four GPUs", [one for one in verdicts if one.start.gpus > 1]),
    ):
        if not chosen:
            continue
        exact = [one for one in chosen if one.exact]
        within = sum(one.within for one in exact)
        others = sum(one.within for one in chosen if not one.exact)
        limits = _limits(chosen[0])
        lines += [
            f"{name}: {len(chosen)} starts, {sum(one.ends_alike for one in chosen)} end as the real one",
            f"  {len(exact)} call themselves exact, {within} of them are within {limits}",
            f"  {len(chosen) - len(exact)} say why not, {others} of them are within it all the same",
        ]
    return "\n".join(lines)


def _limits(one: Verdict) -> str:
    return f"{one.limits.tokens:.2%} of KV tokens and {one.limits.peak // MIB} MiB of each peak"


def write_judged(verdicts: Sequence[Verdict], doubts: Mapping[str, int]) -> None:
    """Into benchmarks/results, in the order of `doubts`: the error bar of each start outside torch."""
    order = {name: at for at, name in enumerate(doubts)}
    rows = sorted(verdicts, key=lambda one: order[one.start.name])
    write_record("", {"starts": [_told(one, doubts[one.start.name]) for one in rows]}, str(JUDGED))


def _told(one: Verdict, doubt: int) -> dict[str, object]:
    torch, outside = worst(one.peaks), worst(one.outside)
    return {
        "name": one.start.name,
        "gpus": one.start.gpus,
        "measured": one.start.ending,
        "ghost": one.ending,
        "tokens": one.tokens,
        "torch": torch and torch.bytes,
        "outside": outside and outside.bytes,
        "doubt": doubt,
        "within": one.within,
        "limits": _limits(one),
        "inexact": list(one.inexact),
    }
