"""A start of a server, by SGLang on the ghost or by the core: how it is changed (`dp=4`, `tp=4+ep=4`,
`SGLANG_X=1`, `gpu=b200`, `sglang=0.5.23`), which of its ranks are started, and the result."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.record.record import Record
from runtime.server.parallel import ParallelConfig
from runtime.sglang.releases import Release
from sgl_tune.asking.question import replaced
from sgl_tune.deployment.flag_names import flag_names, spelled
from sgl_tune.errors import UsageError
from sgl_tune.memory.report import MemoryReport, worst
from sgl_tune.units import shown

DISTINCT, ALL = "distinct", "all"
_MOST_STAGES = 4
_RANKS = "write distinct, all or one number"
LM_HEAD = "lm-head-in-autotune"
ASCENDING = "graphs-ascending"
DISPATCHER = "dispatcher-by-max-running-requests"
BEHAVIOURS = (LM_HEAD, ASCENDING, DISPATCHER)
_SHORT = {"no-graphs": "disable-cuda-graph"}
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_SWEEP = re.compile(f"([a-z0-9-]+)={_NUMBER}:{_NUMBER}:{_NUMBER}")
_MOST_STEPS = 64
_WRITE = "write a flag as dp=4, a variable as SGLANG_X=1, gpu=b200 or sglang=0.5.23; join changes with +"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a start. `parts`: names and values of flags (without dashes), variables, `gpu`, `sglang`
    or behaviours of the core."""

    name: str
    parts: tuple[tuple[str, str | None], ...] = ()

    @property
    def line(self) -> str:
        """Return the changed flags as text to paste."""
        return " ".join(
            f"--{name} {value}" if value is not None else f"--{name}" for name, value in self.parts
        )


AS_IS = Change("as is")


def parse_change(text: str) -> Change:
    """Parse a change whose parts are joined by `+`."""
    parts: list[tuple[str, str | None]] = []
    for part in text.split("+"):
        name, equals, value = part.partition("=")
        if not (VARIABLE.fullmatch(name) and equals) and not _FLAG.fullmatch(name):
            raise UsageError(f"--what-if {text!r}: {part!r} is no flag and no variable", _WRITE)
        parts.append((_SHORT.get(part, name), value if equals else None))
    return Change(text, tuple(parts))


def parse_sweep(text: str) -> tuple[Change, ...]:
    """Parse FLAG=FIRST:LAST:STEP, such as `mem-fraction-static=0.80:0.94:0.01`."""
    match = _SWEEP.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--sweep {text!r} is not FLAG=FIRST:LAST:STEP", "write mem-fraction-static=0.80:0.94:0.01"
        )
    first, last, step = (float(part) for part in match.groups()[1:])
    if step <= 0 or last < first:
        raise UsageError(f"--sweep {text!r} has no step from {first:g} to {last:g}")
    count = round((last - first) / step) + 1
    if count > _MOST_STEPS:
        raise UsageError(
            f"--sweep {text!r} has {count} steps", f"use a larger step: at most {_MOST_STEPS} steps"
        )
    digits = max(len(part.partition(".")[2]) for part in match.groups()[1:])
    values = [f"{first + i * step:.{digits}f}" for i in range(count)]
    return tuple(Change(f"{match[1]}={value}", ((match[1], value),)) for value in values)


def change_of(flags: Mapping[str, Any], release: Release) -> Change:
    """Return a change of these flags, spelled as the release spells them. Keys are SGLang's argument
    names."""
    parts = []
    for argument, value in flags.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        name, _, text = spelled(release, argument, shown).removeprefix("--").partition(" ")
        parts.append((name, text or None))
    return Change(" ".join(flags), tuple(parts))


def changed_command(argv: Sequence[str], variables: Mapping[str, str], change: Change) -> str:
    """Return the user's own server command with this change, ready to paste."""
    for name, value in change.parts:
        field = flag_names().get(f"--{name}")
        same = {f"--{name}", *(flag for flag, of in flag_names().items() if of == field)}
        argv = replaced(argv, same, [f"--{name}", *(value.split() if value is not None else ())])
    set_here = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*set_here, shlex.join(["python", "-m", "sglang.launch_server", *argv])])


@dataclass(frozen=True, slots=True)
class Layout:
    """How a server's ranks share the work. `dp`: the number of DP attention groups."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    @property
    def ranks(self) -> int:
        return self.tp * self.pp

    def name(self, rank: int) -> str:
        """Return the rank's name as in SGLang's log: `DP1 PP0 TP3`."""
        tp_rank, stage = rank % self.tp, rank // self.tp
        names = [f"DP{tp_rank // max(1, self.tp // self.dp)}"] if self.dp > 1 else []
        names += [f"PP{stage}"] if self.pp > 1 else []
        return " ".join([*names, f"TP{tp_rank}"])

    def started(self, asked: str) -> tuple[int, ...]:
        """Return the ranks to start. The ranks of a stage hold equal memory, because SGLang divides heads,
        experts and the vocabulary evenly or refuses. Stages differ by their layers; the first has the
        embedding and the last has the head."""
        first = first_rank(asked)
        if first >= self.ranks:
            raise UsageError(f"--ranks {shown(asked)}: this server has ranks 0 to {self.ranks - 1}", _RANKS)
        if asked == ALL:
            return tuple(range(self.ranks))
        if asked != DISTINCT or self.pp == 1:
            return (first,)
        stages = {1, self.pp // 2, self.pp - 1} if self.pp > _MOST_STAGES else set(range(1, self.pp))
        return (0, *(stage * self.tp for stage in sorted(stages)))


def layout_of(record: Record) -> Layout:
    """Return the layout that SGLang resolved, or one rank if the start ended before that."""
    given = record.arguments
    has_dp_attention = given.get("enable_dp_attention") is True
    return Layout(_size(given, "tp_size"), _size(given, "pp_size"), _size(given, "dp_size", has_dp_attention))


def layout_for(parallel: ParallelConfig) -> Layout:
    return Layout(parallel.tp, parallel.pp, parallel.attn_dp)


def _size(given: Mapping[str, Any], name: str, counts: bool = True) -> int:
    size = given.get(name)
    return size if counts and isinstance(size, int) and size > 0 else 1


def first_rank(asked: str) -> int:
    """Return the rank to start first; its record says how many ranks the server has."""
    if asked in (DISTINCT, ALL):
        return 0
    if not (asked.isascii() and asked.isdecimal()) or len(asked) > 6:
        raise UsageError(f"--ranks {shown(asked)} is no rank", _RANKS)
    return int(asked)


@dataclass(frozen=True, slots=True)
class Started:
    """The result of starting a server. `reports`: one per started rank. `graphs`: the largest batch of a
    decode graph. `seconds`: CPU seconds. `record`: the record of the leading rank, if SGLang itself was
    started."""

    reports: tuple[MemoryReport, ...]
    layout: Layout
    graphs: int | None = None
    seconds: float = 0.0
    record: Record | None = None

    @property
    def report(self) -> MemoryReport:
        """Return the leading rank's report: it ran out of memory, or has the least free memory."""
        return worst(self.reports)


class Starter(Protocol):
    """Starts one server several times. `least`: stop a start when a phase leaves fewer free bytes."""

    @property
    def release(self) -> Release: ...
    def start(self, change: Change, least: int | None = None) -> Started: ...
    def check(self, change: Change) -> None:
        """Raise UsageError for a change that this server cannot have, before anything is started."""

    def command(self, change: Change) -> str:
        """Return the user's own server command with this change."""


# For a search: start with a change, until a phase leaves fewer free bytes than given.
Start = Callable[[Change, int | None], Started]
