"""Compiles every configuration that a search may try, in processes that share one import. Uses no GPU."""

import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from runtime.moe_configs.candidates import Layer, choices
from runtime.moe_configs.inside import pretending
from runtime.moe_configs.inside.places import Places
from runtime.moe_configs.layer import Layers
from runtime.moe_configs.search import PRESENT, Named
from runtime.record.layers import LayerCall

_PLACE = struct.Struct("=H")


@dataclass(frozen=True)
class Compiled:
    """The result. `failed` has the few configurations that do not compile, with the reasons."""

    tried: int
    failed: dict[str, str]
    seconds: float


def compile_all(
    call: LayerCall,
    kind: Layer,
    buckets: Sequence[int],
    here: Places,
    arguments: Mapping[str, Any],
    capability: tuple[int, int],
    processes: int,
    say: Callable[[], object] = lambda: None,
) -> Compiled:
    """Compile all configurations into Triton's cache, where the measuring process finds them."""
    began = time.perf_counter()
    pretending.compile_only(here.layer, *capability)
    layers = Layers(call, here, arguments, "meta")
    rows: dict[Named, list[int]] = {PRESENT: list(buckets)}
    for bucket in buckets:
        for choice in choices(kind, bucket):
            rows.setdefault(choice, []).append(bucket)
    work = sorted(rows, key=_size, reverse=True)
    questions, (heard, done) = _queue(len(work)), os.pipe()
    pipes = [_forked(questions, done, work, rows, layers) for _ in range(min(processes, len(work)))]
    os.close(done)
    while os.read(heard, 64):
        say()
    os.close(heard)
    failed: dict[str, str] = {}
    for pid, answers in pipes:
        with os.fdopen(answers) as lines:
            failed |= json.load(lines)
        os.waitpid(pid, 0)
    return Compiled(len(work), failed, time.perf_counter() - began)


def _size(name: Named) -> float:
    """Return a number that is larger for configurations that take longer to compile."""
    return inf if name is PRESENT else name.up.m * name.up.n * name.up.k * name.up.stages


def _queue(count: int) -> int:
    """Return a pipe that holds the numbers of all jobs; each reader takes the next one."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(_PLACE.pack(place) for place in range(count)))
    os.close(writing)
    return reading


def _forked(
    questions: int, done: int, work: Sequence[Named], rows: Mapping[Named, Sequence[int]], layers: Layers
) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        failed = {}
        while place := os.read(questions, _PLACE.size):
            choice = work[_PLACE.unpack(place)[0]]
            try:
                _compile(choice, rows[choice], layers)
            except Exception as error:
                failed[str(choice)] = f"{type(error).__name__}: {str(error)[:300]}"
            os.write(done, b".")
        os.write(writing, json.dumps(failed).encode())
    finally:
        os._exit(0)


def _compile(choice: Named, buckets: Sequence[int], layers: Layers) -> None:
    """Compile a choice for all buckets: kernels depend on whether a batch's sizes are multiples of 16."""
    pretending.building = choice is PRESENT
    with layers.under(choice):
        for bucket in buckets:
            layers.batch(bucket, 1)[0]()
