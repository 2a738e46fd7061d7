"""The phases of a start: their order, and which of them has a peak of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runtime.start.run_record import Phase, Run


def rooted(run: Run) -> Run:
    """The same run, where a phase whose outer phase did not end stands for itself."""
    ended = [*run.phases, *([run.failure.at_failure] if run.failure else [])]
    found = []
    for place, phase in enumerate(ended):
        least, depth = phase.depth, 0
        for later in ended[place + 1 :]:
            least, depth = (later.depth, depth + 1) if later.depth < least else (least, depth)
        found.append(replace(phase, depth=depth))
    failure = replace(run.failure, at_failure=found.pop()) if run.failure else None
    return replace(run, phases=tuple(found), failure=failure)


def beyond_peak(phase: Phase, total: int) -> tuple[int, int]:
    """What torch held without using it when least was free, and what lay outside torch: this was read at the
    phase's end, and a peak may be before that."""
    held = total - phase.free_at_peak_bytes - phase.peak_bytes
    outside = min(phase.non_torch_bytes, held)
    return held - outside, outside


def peaking(phases: Sequence[Phase]) -> list[Phase]:
    """Phases in the order they began, without those whose peak is that of a phase within them."""
    return [
        phase
        for place, phase in enumerate(phases)
        if not any(inner.reserved_peak_bytes >= phase.reserved_peak_bytes for inner in _within(phases, place))
    ]


def _within(phases: Sequence[Phase], place: int) -> Iterator[Phase]:
    for phase in phases[place + 1 :]:
        if phase.depth <= phases[place].depth:
            return
        yield phase


def in_begin_order(ended: Iterable[Phase]) -> list[Phase]:
    """Phases in the order they began, from the order in which they ended: an inner one ends first."""
    done: list[list[Phase]] = []
    for phase in ended:
        inner: list[Phase] = []
        while done and done[-1][0].depth > phase.depth:
            inner = done.pop() + inner
        done.append([phase, *inner])
    return [phase for group in done for phase in group]
