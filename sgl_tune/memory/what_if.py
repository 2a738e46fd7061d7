"""Other starts of the same deployment: `lm-head-in-autotune`, `dp=4`, `tp=4+ep=4`, and sweeps of one flag."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from sgl_tune.deployment.options import flag_names, flag_types
from sgl_tune.errors import UsageError

LM_HEAD = "lm-head-in-autotune"
ASCENDING = "graphs-ascending"
DISPATCHER = "dispatcher-by-max-running-requests"
NO_GRAPHS = "no-graphs"
BEHAVIOURS = (LM_HEAD, ASCENDING, DISPATCHER)
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_SWEEP = re.compile(f"([a-z0-9-]+)={_NUMBER}:{_NUMBER}:{_NUMBER}")
_MOST_STEPS = 64
_SWEEP_AS = "write mem-fraction-static=0.80:0.94:0.01"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`behaviours` are ways a server has started in some release; `flags` are SGLang's, set differently."""

    name: str
    behaviours: frozenset[str] = frozenset()
    flags: dict[str, Any] = field(default_factory=dict)


AS_IS = WhatIf("as is")


def parse_what_if(text: str) -> WhatIf:
    """Parts joined by `+` are one start that differs in all of them."""
    behaviours, flags = set(), {}
    for part in text.split("+"):
        name, equals, value = part.partition("=")
        if part in BEHAVIOURS:
            behaviours.add(part)
        elif part == NO_GRAPHS:
            flags["disable_cuda_graph"] = True
        elif not equals and flag_types().get(flag_names().get(f"--{name}", "")) is bool:
            flags[flag_names()[f"--{name}"]] = True
        elif equals and f"--{name}" in flag_names():
            field_name = flag_names()[f"--{name}"]
            flags[field_name] = _value(field_name, name, value)
        else:
            raise UsageError(
                f"--what-if {text!r}: {part!r} is neither a behaviour nor FLAG=VALUE",
                f"one of {', '.join((*BEHAVIOURS, NO_GRAPHS))}, or a server flag such as dp=4, "
                "enable-dp-attention, mem-fraction-static=0.86, chunked-prefill-size=4096; join with +",
            )
    return WhatIf(text, frozenset(behaviours), flags)


def parse_sweep(text: str) -> tuple[WhatIf, ...]:
    """`mem-fraction-static=0.80:0.94:0.01`: first, last, step."""
    name, values = sweep_values(text)
    if f"--{name}" not in flag_names():
        raise UsageError(f"--sweep {text!r}: --{name} is no flag that is known here", _SWEEP_AS)
    return tuple(parse_what_if(f"{name}={value}") for value in values)


def sweep_values(text: str) -> tuple[str, tuple[str, ...]]:
    """The flag of a sweep, without its dashes, and each of its values as it is written."""
    match = _SWEEP.fullmatch(text)
    if match is None:
        raise UsageError(f"--sweep {text!r} is not FLAG=FIRST:LAST:STEP", _SWEEP_AS)
    first, last, step = (float(part) for part in match.groups()[1:])
    if step <= 0 or last < first:
        raise UsageError(f"--sweep {text!r}: from {first:g} to {last:g} in steps of {step:g} leads nowhere")
    count = round((last - first) / step) + 1
    if count > _MOST_STEPS:
        raise UsageError(f"--sweep {text!r} has {count} steps", f"at most {_MOST_STEPS}: a larger step")
    digits = max(len(part.partition(".")[2]) for part in match.groups()[1:])
    return match[1], tuple(f"{first + i * step:.{digits}f}" for i in range(count))


def _value(field_name: str, flag: str, text: str) -> Any:
    kind = flag_types()[field_name]
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"--what-if {flag}={text}: {text!r} is no value of --{flag}") from None
