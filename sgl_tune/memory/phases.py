"""The order of a start's phases, and which phases have a peak of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runtime.start.run_record import Phase, Run


def rooted(run: Run) -> Run:
    """Return the run with new depths: a phase whose outer phase did not end counts as outermost."""
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
    """Return two sizes at the peak: bytes that torch held without using them, and bytes outside torch. The
    second was read at the end of the phase, and the peak may be earlier."""
    held = total - phase.free_at_peak_bytes - phase.peak_bytes
    outside = min(phase.non_torch_bytes, held)
    return held - outside, outside


def peaking(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases in the order they began, without those whose peak is that of an inner phase."""
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
    """Sort phases, given in the order they ended, by their begin. An inner phase ends before its outer
    one."""
    done: list[list[Phase]] = []
    for phase in ended:
        inner: list[Phase] = []
        while done and done[-1][0].depth > phase.depth:
            inner = done.pop() + inner
        done.append([phase, *inner])
    return [phase for group in done for phase in group]
