"""Progress bars: what the tuner measured, how long DeepGEMM compiled, and how long the first graph took."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADS = frozenset(("[Aut", "Deep", "Capt", "Comp", "Load", "Mult"))  # a bar's first letters
_BAR = re.compile(
    r"(?P<what>\[AutoTuner\]: Tuning (?P<op>\S{1,200})|DeepGEMM warmup|Capturing|Compiling|Loading|Multi)"
    r".{0,400}?(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<"
    r"(?:[^\r\n,]{0,20}, +(?P<rate>\d{1,9}\.\d+)(?P<unit>profile/s|s/profile))?"
)
_GRAPH = re.compile(
    r"Capturing [^\r\n|]{0,120}?: +\d{1,3}%\|[^\r\n]{0,300}?"
    r" (?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<[^\r\n,]{0,20},"
    r" +(?P<rate>\d{1,9}\.\d+)(?P<unit>s/it|it/s)"
)


@dataclass(frozen=True, slots=True)
class FirstGraph:
    seconds: float
    graphs: int
    all_seconds: float

    @property
    def others_seconds(self) -> float:
        return (self.all_seconds - self.seconds) / max(1, self.graphs - 1)


@dataclass
class Bars:
    """Of one start. A bar rewrites its line, or where a collector breaks lines at that, is many lines."""

    count: int = 0
    profiled: dict[str, int] = field(default_factory=dict)
    first_graphs: dict[str, FirstGraph] = field(default_factory=dict)  # by phase, of the slowest
    tuned_seconds: float = 0.0  # by the clocks of the tuner's bars
    _last: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    _first: float | None = None

    def hear(self, text: str) -> float | None:
        """How long a compilation took whose bar has ended."""
        bar = _BAR.match(text)
        if bar is None:
            return None
        self.count += 1
        if bar["op"]:
            self._tuned(bar["op"].rstrip(":"), int(bar["done"]), int(bar["total"]), _measured(bar))
        elif bar["what"] == "DeepGEMM warmup" and bar["done"] == bar["total"]:
            return _seconds(bar["elapsed"])
        return None

    def see(self, raw: str, phase: str) -> None:
        """A whole line, with all that a bar said in it: the first graph's own rate is its time."""
        for bar in _GRAPH.finditer(raw):
            done, total = int(bar["done"]), int(bar["total"])
            if done == 1 and total > 1:
                rate = float(bar["rate"])
                self._first = rate if bar["unit"] == "s/it" else 1 / max(rate, 1e-6)
            elif done == total and self._first is not None:
                found = FirstGraph(self._first, total, _seconds(bar["elapsed"]))
                before = self.first_graphs.get(phase)
                if before is None or before.seconds < found.seconds:
                    self.first_graphs[phase] = found
                self._first = None

    def _tuned(self, op: str, done: int, total: int, seconds: float) -> None:
        """A bar that was seen on its way, and is at its end twice, is one: tqdm writes its end again."""
        before, under_way, until = self._last.get(op, (0, 0, 0.0))
        if done < total:
            under_way = total
        same = under_way == total and done >= before
        self.profiled[op] = self.profiled.get(op, 0) + done - (before if same else 0)
        self.tuned_seconds += max(0.0, seconds - (until if same else 0.0))
        self._last[op] = (done, under_way, max(seconds, until) if same else seconds)


def _measured(bar: re.Match[str]) -> float:
    """tqdm's elapsed time is in whole seconds; the rate of a bar at its end says it more exactly."""
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
