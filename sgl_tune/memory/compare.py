"""Compare a prediction with what happened: a measured run, or a server's own log."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.memory.report import Comparison, MemoryReport, Row
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.rank_log import RankLog


def beside_measured(predicted: MemoryReport, measured: MemoryReport) -> Comparison:
    return Comparison("Predicted and measured", "measured", tuple(_measured_rows(predicted, measured)))


def _measured_rows(predicted: MemoryReport, measured: MemoryReport) -> Iterator[Row]:
    for phase in measured.run.phases:
        twin = predicted.phase(phase.name)
        if twin is not None:
            yield Row(f"{phase.name}: torch's peak", twin.peak_bytes, phase.peak_bytes)
            yield Row(f"{phase.name}: reserved at most", twin.reserved_peak_bytes, phase.reserved_peak_bytes)
            yield Row(f"{phase.name}: outside torch", twin.non_torch_bytes, phase.non_torch_bytes)
    for what in ("kv_tokens", "max_running_requests"):
        values = getattr(predicted.sizes, what), getattr(measured.sizes, what)
        if None not in values:
            yield Row(what.replace("_", " "), *values, in_bytes=False)
    if predicted.oom and measured.oom:
        yield Row("tried to allocate", predicted.oom.tried_bytes, measured.oom.tried_bytes)


def beside_log(predicted: MemoryReport, log: ServerLog) -> Comparison:
    lead = log.lead
    who = f"log of {lead.name}" if lead.rank or lead.source else "log"
    rows = (*_logged_rows(predicted, lead), *_failure_rows(predicted, log))
    return Comparison("Predicted and logged", who, rows)


def _logged_rows(predicted: MemoryReport, log: RankLog) -> Iterator[Row]:
    before = predicted.phase("communicator")
    if before is not None and log.baseline_bytes is not None:
        yield Row("free before weights", predicted.free_after(before), log.baseline_bytes)
    for step in log.steps:
        twin = predicted.phase(step.phase)
        if twin is not None and step.free_bytes is not None:
            yield Row(f"free after {step.phase}", predicted.free_after(twin), step.free_bytes)
        if twin is not None and step.used_bytes is not None and step.phase != "kv pool":
            used = twin.non_torch_bytes if step.phase == "communicator" else twin.persistent_bytes
            yield Row(f"taken by {step.phase}", used, step.used_bytes)
    sizes, requests = predicted.sizes, log.sizes.get("max_running_requests")
    if sizes.kv_tokens and sizes.kv_bytes_per_token and log.kv_bytes:
        yield Row("KV cache", sizes.kv_tokens * sizes.kv_bytes_per_token, log.kv_bytes)
    for what, logged in (("kv_tokens", log.kv_tokens), ("max_running_requests", requests)):
        value = getattr(sizes, what)
        if value is not None and logged is not None:
            yield Row(what.replace("_", " "), value, logged, in_bytes=False)


def _failure_rows(predicted: MemoryReport, log: ServerLog) -> Iterator[Row]:
    numbers = log.oom.numbers if log.oom else None
    if numbers and predicted.oom:
        yield Row("tried to allocate", predicted.oom.tried_bytes, numbers.tried_bytes)
        yield Row("free at the failure", predicted.oom.free_bytes, numbers.free_bytes)
        yield Row("allocated at the failure", predicted.oom.allocated_bytes, numbers.allocated_bytes)
