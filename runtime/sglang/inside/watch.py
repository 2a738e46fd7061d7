"""Reads the memory around SGLang's own steps. Their names in every release are only in this file."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from runtime.ghost.inside.stream import say
from runtime.sglang.inside import holders
from runtime.sglang.inside.blame import blame

RUNNER = "sglang.srt.model_executor.model_runner:ModelRunner."
SETUP = "sglang.srt.model_executor.model_runner_components.cuda_graph_setup:"
BASE = "sglang.srt.model_executor.runner.base_runner:BaseRunner."
OLD_EAGER = "sglang.srt.model_executor.model_runner:EagerRunner"
_NO_MEMORY = "out of memory"  # in torch's words, and in the driver's
FOLDING = "/folding/inside/"  # whose calls stand between SGLang's own
Step = Callable[..., Any]


class Point(NamedTuple):
    """A step, under the name that reports show. The first place that exists in a release is watched."""

    name: str
    places: tuple[str, ...]
    required: bool = True


POINTS = (
    Point("start", ("sglang.srt.managers.scheduler:Scheduler.__init__",)),
    Point("communicator", (RUNNER + "init_torch_distributed",)),
    Point("weights", (RUNNER + "load_model",)),
    Point("kv pool", (RUNNER + "alloc_memory_pool", RUNNER + "init_memory_pool")),
    Point("attention backend", (RUNNER + "init_attention_backends", RUNNER + "init_attention_backend")),
    Point("graphs", (RUNNER + "init_cuda_graphs",), required=False),
    Point("eager", (SETUP + "EagerRunner", OLD_EAGER), required=False),
    Point("kernel warmup", (RUNNER + "kernel_warmup",), required=False),
    Point("autotune", (BASE + "_flashinfer_autotune", RUNNER + "_flashinfer_autotune")),
    Point(
        "prefill graphs",
        (
            SETUP + "capture_prefill_graph",
            RUNNER + "init_prefill_cuda_graph",
            RUNNER + "init_piecewise_cuda_graphs",
        ),
    ),
    Point(
        "decode graphs",
        (SETUP + "capture_decode_graph", RUNNER + "init_decode_cuda_graph", RUNNER + "init_device_graphs"),
    ),
)


class MissingPoint(RuntimeError):
    """A release moved or renamed a step that reports need."""


class Meter:
    """Measures each phase; a peak counts for the phases around it, too."""

    def __init__(
        self,
        at_end: Callable[[str], None],
        at_begin: Callable[[str], None],
        at_death: Callable[[str], None],
        before: Callable[[str, Any], None] = lambda phase, runner: None,
        least_free: Callable[[int, int], int] = lambda free, total: free,
    ) -> None:
        """`before` is called inside each phase with its name and the object whose step it is. `least_free`
        turns the driver's free and total bytes of now into the least free bytes since its last call."""
        self._at_end, self._at_begin, self._at_death = at_end, at_begin, at_death
        self.before, self._least_free = before, least_free
        self._open: list[dict[str, int]] = []
        self.died = False

    def readings(self) -> dict[str, int]:
        import torch

        free, total = torch.cuda.mem_get_info()
        read = {
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "peak": torch.cuda.max_memory_allocated(),
            "reserved_peak": torch.cuda.max_memory_reserved(),
            "free": free,
            "total": total,
        }
        torch.cuda.reset_peak_memory_stats()
        least = self._least_free(free, total)
        for outer in self._open:
            for name in ("peak", "reserved_peak"):
                outer[name] = max(outer[name], read[name])
            outer["least_free"] = min(outer["least_free"], least)
        return read

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before = self.readings()
        began, peaks = time.monotonic(), {"peak": 0, "reserved_peak": 0, "least_free": before["free"]}
        self._open.append(peaks)
        say("step", name=name, depth=len(self._open) - 1)
        self._at_begin(name)
        try:
            yield
            self._at_end(name)
        except BaseException as error:
            if not self.died:
                self.died = True
                say_died(name, error, **self._reading(before, began, peaks))
                self._at_death(name)
            raise
        finally:
            if not self.died:
                say("phase", name=name, **self._reading(before, began, peaks))
            self._open.pop()

    def _reading(self, before: dict[str, int], began: float, peaks: dict[str, int]) -> dict[str, Any]:
        return {
            **self.readings(),
            **peaks,
            "allocated_before": before["allocated"],
            "seconds": round(time.monotonic() - began, 3),
            "depth": len(self._open) - 1,
        }


def say_died(phase: str, error: BaseException, **reading: Any) -> None:
    told = describe(error)
    chain = _chain(error)
    ours = not any(_NO_MEMORY in str(one) for one in chain) and next(filter(None, map(blame, chain)), None)
    if ours:
        say("broken", **{**told, "phase": phase, "text": ours})
    say("died", phase=phase, **told, **reading)


def describe(error: BaseException) -> dict[str, Any]:
    """Return an exception as data: its type, its text, and the calls that led to it and to the one from which
    it followed, innermost last.

    If it followed from running out of memory, the first one's type and text are returned.
    """
    import traceback

    chain = _chain(error)
    first = next((one for one in chain if _NO_MEMORY in str(one)), chain[0])
    told = error if _NO_MEMORY in str(error) or _NO_MEMORY not in str(first) else first
    frames = traceback.extract_tb(error.__traceback__)
    if first is not error:
        frames += traceback.extract_tb(first.__traceback__)
    stack = [f"{one.filename}:{one.lineno} {one.name}" for one in frames if FOLDING not in one.filename]
    return {"type": type(told).__name__, "text": str(told)[:4000], "stack": stack[-60:]}


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exceptions that led to `error`, the first one first, as Python prints them."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.insert(0, one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def install(meter: Meter) -> None:
    """Wrap the meter around every step that this release has; a missing required one is an error."""
    for point in POINTS:
        found = any(_wrap(place, point.name, meter) for place in point.places)
        if point.required and not found:
            raise MissingPoint(
                f"no watch point for '{point.name}': this release has none of {', '.join(point.places)}"
            )


def _wrap(place: str, name: str, meter: Meter) -> bool:
    module, _, path = place.partition(":")
    try:
        owner: Any = import_module(module)
    except ImportError:
        return False
    *parents, last = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    inner = getattr(owner, last, None)
    if inner is None:
        return False
    setattr(owner, last, _watched(inner, name, meter))
    return True


def _watched(inner: Step, name: str, meter: Meter) -> Step:
    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        runner = args[0] if args else kwargs.get("model_runner")
        phase = f"draft {name}" if getattr(runner, "is_draft_worker", False) else name
        with meter.phase(phase):
            meter.before(phase, runner)
            answer = inner(*args, **kwargs)
        if name == "weights":
            say("held", phase=phase, bytes=holders.held_by(getattr(runner, "model", None)))
        return answer

    return outer
