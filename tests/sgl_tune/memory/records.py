"""Records for tests, made by the events that a start's stream has; no server is started."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.ghost.gpus import gpus
from runtime.ghost.outside import table
from runtime.record.events import Event, record_of
from runtime.record.parts import Asked
from runtime.record.record import Record
from runtime.server.units import GIB, MIB
from sgl_tune.memory.of_record import report_of
from sgl_tune.memory.report import MemoryReport

TOTAL = 140 * GIB
OUTSIDE = 600 * MIB
SITE = "/venv/lib/python3.11/site-packages"
STACK = [
    "/home/me/runtime/sglang/inside/watch.py:150 outer",
    f"{SITE}/sglang/srt/model_executor/model_runner.py:900 kernel_warmup",
    "/home/me/runtime/ghost/inside/mode.py:37 run",
    f"{SITE}/sglang/srt/layers/logits_processor.py:700 _get_logits",
]
OOM = (
    "CUDA out of memory. Tried to allocate 6.38 GiB. GPU 0 has a total capacity of 140.00 GiB of which "
    "2.98 GiB is free. Including non-PyTorch memory, this process has 137.02 GiB memory in use. Of the "
    "allocated memory 135.00 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF"
)
READY: Event = {
    "event": "ready",
    "kv_tokens": 914_039,
    "max_running_requests": 3570,
    "mem_fraction_static": 0.91,
    "chunked_prefill_size": 8192,
    "context_length": 131_072,
}
ENDED: Event = {"event": "ended", "code": 0, "cpu": 3.5, "rss": 1 << 30}
GUESS: Event = {
    "event": "inexact",
    "kind": "stub",
    "name": "fused_moe_90",
    "phase": "autotune",
    "frame": "flashinfer/fused_moe/core.py:1 f",
    "why": "no module",
}


def reading(before: float, after: float, peak: float, reserved: float, depth: int = 1) -> dict[str, Any]:
    """Of one phase; sizes in GiB. Its `reserved` is the highest too."""
    free = TOTAL - OUTSIDE - round(reserved * GIB)
    return {
        "depth": depth,
        "seconds": 0.5,
        "allocated_before": round(before * GIB),
        "allocated": round(after * GIB),
        "reserved": round(reserved * GIB),
        "peak": round(peak * GIB),
        "reserved_peak": round(reserved * GIB),
        "free": free,
        "total": TOTAL,
        "least_free": free,
    }


def phase(name: str, *sizes: float, depth: int = 1) -> Event:
    return {"event": "phase", "name": name, **reading(*sizes, depth=depth)}


def grown_outside(event: Event, size: int) -> Event:
    """The same phase, whose peak was before so many bytes outside torch came."""
    free = event["free"] - size
    return {**event, "free": free, "least_free": min(event["least_free"], free)}


def arguments(**given: Any) -> Event:
    return {"event": "asked", "rank": 0, "arguments": {"tp_size": 1, "pp_size": 1, "dp_size": 1, **given}}


PHASES = (
    phase("communicator", 0, 0, 0, 0),
    phase("weights", 0, 15, 15.1, 15.25),
    phase("kv pool", 15, 128, 128, 128.25),
    phase("eager", 128, 128.5, 130, 130.5, depth=2),
    phase("graphs", 128, 129, 130, 131),
    phase("start", 0, 129, 130, 131, depth=0),
)
HELD: Event = {
    "event": "held",
    "phase": "weights",
    "bytes": {"experts": 10 * GIB, "attention": 3 * GIB, "embeddings": GIB},
}


def made(*events: Event, rank: int = 0, versions: Mapping[str, str] | None = None) -> Record:
    asked = Asked(
        ("--model-path", "m"), rank, "h200", "ghost", "3.11.7", "13.0", dict(versions or {"sglang": "0.5.17"})
    )
    return record_of(asked, events)


def ready(*events: Event, **given: Any) -> Record:
    return made(arguments(**given), *PHASES, HELD, *events, READY, ENDED)


def died(kind: str = "OutOfMemoryError", text: str = OOM) -> Record:
    at = {"event": "died", "phase": "autotune", "type": kind, "text": text, "stack": STACK}
    return made(arguments(), *PHASES[:3], {**at, **reading(128, 135, 135, 136.02)}, ENDED)


def refused(kind: str, text: str) -> Record:
    return made({"event": "refused", "by": "arguments", "type": kind, "text": text, "stack": []}, ENDED)


def report(record: Record, margin_bytes: int = 6 * MIB, taken_bytes: int = 0) -> MemoryReport:
    found = report_of(record, gpus()["h200"], "llama", table(), taken_bytes=taken_bytes)
    return replace(found, margin_bytes=margin_bytes)
