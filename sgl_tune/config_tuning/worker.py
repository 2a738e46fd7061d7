"""A process of the server's Python that measures a layer. It imports torch, Triton and SGLang's MoE."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from runtime.autotune.search import SearchPolicy
from runtime.moe_configs.candidates import choices
from runtime.moe_configs.inside.places import places
from runtime.moe_configs.search import PRESENT, decide_all
from runtime.record.checked import read
from sgl_tune.config_tuning.job import LayerJob
from sgl_tune.processes.child import Child
from sgl_tune.warm.events import DONE, ERROR, JOB, PROGRESS, START

_FEW = 512  # rows below which the routing matters


def main(child: Child) -> None:
    began = time.perf_counter()
    child.command()  # the first command, its team: this process alone
    import torch

    here = places()
    imported = time.perf_counter() - began
    child.say(START)
    for command in child.commands():
        assert command["kind"] == JOB
        try:
            report = measured(read(LayerJob, command["job"], "job"), here, partial(child.say, PROGRESS))
        except Exception as error:
            child.say(ERROR, message=f"{type(error).__name__}: {str(error)[:500]}")
            raise
        report["seconds"]["import"] = imported
        child.say(DONE, report=report)
        torch.cuda.empty_cache()


def measured(job: LayerJob, here: Any, say: Any = lambda **_: None) -> dict[str, Any]:
    import torch

    from runtime.moe_configs.clock import GraphClock
    from runtime.moe_configs.layer import CannotRun, Layers

    began, late, failed = time.perf_counter(), _late_kernels(), dict[str, str]()
    layer = Layers(job.call, here, job.arguments, "cuda")
    with torch.inference_mode():
        present = {rows: layer.present(rows) for rows in job.buckets}
        torch.cuda.synchronize()
        ready = time.perf_counter()

        @contextmanager
        def bench(rows: int) -> Iterator[GraphClock]:
            clock = GraphClock(layer, rows, 4 if rows <= _FEW else 2)
            yield clock
            if PRESENT in clock.failures:
                raise CannotRun(f"the server's own choice fails at {rows} rows: {clock.failures[PRESENT]}")
            failed.update({str(name): why for name, why in clock.failures.items()})
            torch.cuda.synchronize()

        offered = partial(choices, job.kind)
        decided = decide_all(
            job.buckets, offered, bench, SearchPolicy(), lambda one: say(rows=one.rows, gain=one.gain)
        )
    seconds = {"prepare": ready - began, "measure": time.perf_counter() - ready}
    buckets = [{**asdict(one), "present": present[one.rows]} for one in decided]
    told = {"buckets": buckets, "versions": _versions(), "seconds": seconds}
    return {**told, "late": len(late), "failed": failed}


def _late_kernels() -> list[str]:
    """Return a list that grows by each kernel that Triton still has to compile in this process."""
    import triton

    late: list[str] = []

    def hear(*, src: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            late.append(str(getattr(src, "name", src)))

    compilation = getattr(getattr(triton, "knobs", None), "compilation", None)
    if compilation is not None:
        compilation.listener = hear
    return late


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import torch
    import triton

    return {
        "triton": triton.__version__,
        "torch": torch.__version__,
        "sglang": version("sglang"),
        "gpu": torch.cuda.get_device_name(),
    }
