"""A changed start of the same server: `dp=4`, `tp=4+ep=4`, `SGLANG_X=1`, `gpu=b200`, `sglang=0.5.23`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.asking.question import replaced
from sgl_tune.deployment.flag_names import flag_names, spelled
from sgl_tune.errors import UsageError

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
