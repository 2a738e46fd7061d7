"""Read progress bars: what the tuner measured, and for how long by tqdm's own clock."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADS = frozenset(("[Aut", "Deep", "Capt", "Comp", "Load", "Mult"))  # how progress bars begin
_BAR = re.compile(
    r"(?P<what>\[AutoTuner\]: Tuning (?P<op>\S{1,200})|DeepGEMM warmup|Capturing|Compiling|Loading|Multi)"
    r".{0,400}?(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<"
    r"(?:[^\r\n,]{0,20}, +(?P<rate>\d{1,9}\.\d+)(?P<unit>profile/s|s/profile))?"
)


@dataclass
class Bars:
    """The bars of one start. A bar rewrites its line, or becomes many lines if a log collector splits it.
    Both tables are indexed by the event that began a build. `limits`: the duration of its own bar.
    `tuned_after`: the seconds of tuning after it."""

    count: int = 0
    profiled: dict[str, int] = field(default_factory=dict)
    tuned_seconds: float = 0.0
    limits: dict[int, float] = field(default_factory=dict)
    tuned_after: dict[int, float] = field(default_factory=dict)
    _last: dict[str, tuple[int, int, float]] = field(default_factory=dict)

    def hear(self, text: str, build: int | None) -> None:
        bar = _BAR.match(text)
        if bar is None:
            return
        self.count += 1
        if bar["op"]:
            tuned = self._tuned(bar["op"].rstrip(":"), int(bar["done"]), int(bar["total"]), _measured(bar))
            self.tuned_seconds += tuned
            if build is not None and tuned:
                self.tuned_after[build] = self.tuned_after.get(build, 0.0) + tuned
        elif build is not None and bar["what"] == "DeepGEMM warmup" and bar["done"] == bar["total"]:
            self.limits[build] = _seconds(bar["elapsed"])

    def _tuned(self, op: str, done: int, total: int, seconds: float) -> float:
        """Return the seconds that this line adds. tqdm repeats the end of a bar, which adds nothing."""
        before, under_way, until = self._last.get(op, (0, 0, 0.0))
        if done < total:
            under_way = total
        same = under_way == total and done >= before
        self.profiled[op] = self.profiled.get(op, 0) + done - (before if same else 0)
        self._last[op] = (done, under_way, max(seconds, until) if same else seconds)
        return max(0.0, seconds - (until if same else 0.0))


def _measured(bar: re.Match[str]) -> float:
    """Return a bar's seconds. tqdm shows whole seconds; at a bar's end, its rate is more exact."""
    elapsed = _seconds(bar["elapsed"])
    if bar["rate"] is None or bar["done"] != bar["total"] or float(bar["rate"]) <= 0:
        return elapsed
    rate = float(bar["rate"])
    exact = int(bar["total"]) * (rate if bar["unit"] == "s/profile" else 1 / rate)
    return exact if elapsed <= exact < elapsed + 1 else elapsed


def _seconds(text: str) -> float:
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)
