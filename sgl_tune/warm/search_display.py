"""Show a search while it runs: a table that is redrawn on a terminal, or plain lines in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output, ProgressLine
from sgl_tune.units import count
from sgl_tune.warm.events import PROGRESS

if TYPE_CHECKING:
    from rich.table import Table


Listener = Callable[[int, dict[str, Any]], None]


@dataclass
class _Bucket:
    """A bucket. `left`: tactics still in the race, by the worker that has measured its share."""

    tactics: int = 0
    left: dict[int, int] = field(default_factory=dict)
    best_ms: float | None = None
    default_ms: float | None = None
    decided: bool = False

    def hear(self, worker: int, event: dict[str, Any]) -> None:
        if event["stage"] == "screen":
            self.tactics = event["tactics"]
            self.left[worker] = event["left"]
            times = [ms for ms in (self.best_ms, event["best_ms"]) if ms is not None]
            self.best_ms = min(times, default=None)
        else:
            self.left = {worker: event["left"]}
            self.best_ms, self.decided = event["best_ms"], True
        self.default_ms = event["default_ms"] or self.default_ms

    def cells(self) -> tuple[str, str, str]:
        left = "decided" if self.decided else f"{sum(self.left.values())} of {self.tactics}"
        best = "-" if self.best_ms is None else f"{self.best_ms:.3f} ms"
        return left, best, "-" if self.gain is None else f"{self.gain:.2f}x"

    @property
    def gain(self) -> float | None:
        return None if self.best_ms is None or self.default_ms is None else self.default_ms / self.best_ms


Ops = dict[str, dict[int, _Bucket]]


@contextmanager
def shown(out: Output) -> Iterator[Listener]:
    """Yield what hears a search. In a log it prints from time to time, and one line per op at the end."""
    ops: Ops = {}
    life = None if out.is_live else out.progress("searching")

    def listen(worker: int, event: dict[str, Any]) -> None:
        if event["kind"] == PROGRESS:
            ops.setdefault(event["op"], {}).setdefault(event["bucket"], _Bucket()).hear(worker, event)
            if life is not None:
                _show_progress(ops, life)

    if out.format is Format.quiet or (out.format is Format.json and life is not None):
        yield lambda worker, event: None
    elif life is None:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), get_renderable=lambda: _render(ops), refresh_per_second=8):
            yield listen
    else:
        yield listen
        _show_end(ops, out)


def _show_progress(ops: Ops, life: ProgressLine) -> None:
    seen = [bucket for buckets in ops.values() for bucket in buckets.values()]
    decided = sum(bucket.decided for bucket in seen)
    life.advance(0, f"{count(len(seen), 'bucket')} looked at, {decided} decided")


def _show_end(ops: Ops, out: Output) -> None:
    for op, buckets in ops.items():
        decided = [bucket for bucket in buckets.values() if bucket.decided]
        gains = [bucket.gain for bucket in decided if bucket.gain is not None]
        middle = f", in the middle {median(gains):.2f}x faster than the default" if gains else ""
        most = max((bucket.tactics for bucket in buckets.values()), default=0)
        out.note(f"{op}: {count(len(decided), 'bucket')} decided among up to {most} tactics{middle}")


def _render(ops: Ops) -> "Table":
    """Return a table with every bucket of the current op, and one line per finished op."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("OP", overflow="ellipsis", no_wrap=True)
    for name in ("BUCKET", "LEFT", "BEST", "SPEED-UP"):
        table.add_column(name, justify="right", no_wrap=True)
    for op, buckets in list(ops.items())[:-1]:
        table.add_row(op, f"{len(buckets)} done", "", "", "", style="dim")
    for op, buckets in list(ops.items())[-1:]:
        for size, bucket in sorted(buckets.items()):
            table.add_row(op, str(size), *bucket.cells(), style="green" if bucket.decided else "")
    return table
