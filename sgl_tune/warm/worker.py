"""One worker of a search: `python -m sgl_tune.warm.worker FOLDER`, started by the launcher or by torchrun."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import SglTuneError
from sgl_tune.warm.events import DONE, ERROR, PROGRESS, START, TUNED, Reporter
from sgl_tune.warm.job import CacheJob, Job, base_path, load_job, make_device, tuned_path
from sgl_tune.warm.report import REPORT
from sgl_tune.warm.reuse import agreed, usable_entries, write_base

if TYPE_CHECKING:
    from runtime.autotune.progress import Progress
    from runtime.autotune.tuner import SearchTuner
    from runtime.devices.base import Device


def main(folder: Path) -> int:
    # A worker holds nothing that needs a goodbye, and a blocked collective hears no Python handler.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    reporter = Reporter(folder, int(os.environ["LOCAL_RANK"]))
    try:
        _Worker(folder, reporter).run()
    except Exception as error:  # told to the launcher, which prints one line
        reporter.say(ERROR, **_explained(error))
        if not _is_known(error):
            raise
        return 1
    reporter.say(DONE)
    return 0


def _explained(error: Exception) -> dict[str, Any]:
    from runtime.autotune.errors import TuningOutOfMemory, first_line, is_out_of_memory

    out_of_memory = isinstance(error, TuningOutOfMemory) or is_out_of_memory(error)
    kind = "" if _is_known(error) else f"{type(error).__name__}: "
    return {
        "message": kind + first_line(error),
        "remedy": getattr(error, "remedy", None),
        "out_of_memory": out_of_memory,
    }


def _is_known(error: Exception) -> bool:
    from runtime.autotune.errors import AutotuneError
    from runtime.server.errors import ConfigError

    return isinstance(error, AutotuneError | ConfigError | SglTuneError)


class _Worker:
    def __init__(self, folder: Path, reporter: Reporter) -> None:
        import torch.distributed as dist

        from runtime.autotune.session import install_tuner
        from runtime.autotune.team import Team

        self._folder, self._reporter = folder, reporter
        self._job: Job = load_job(folder)
        self._local = int(os.environ["LOCAL_RANK"])
        timeout = timedelta(seconds=self._job.timeout)
        dist.init_process_group("gloo", timeout=timeout)
        gpu = self._job.gpus[self._local] if self._job.gpus else 0
        self._device = make_device(self._job.device, gpu)
        reporter.say(START, pid=os.getpid())
        self._team = Team.of_world(timeout)
        self._tuner: SearchTuner = install_tuner(self._device.torch_device, self._team, self._watch)
        self._saved = 0
        self._current = 0

    def run(self) -> None:
        import torch.distributed as dist
        from flashinfer.autotuner import _collect_metadata

        environment = _collect_metadata()
        reports = []
        for number, cache in enumerate(self._job.caches):
            self._current = number
            reports.append(self._tune(number, cache, environment))
        if self._local == 0:
            report = {"environment": environment, "caches": reports, "peak_bytes": _peak_bytes(self._device)}
            (self._folder / REPORT).write_text(json.dumps(report))
        dist.destroy_process_group()

    def _tune(self, number: int, cache: CacheJob, environment: dict[str, str]) -> dict[str, Any]:
        from runtime.autotune.session import AutotuneSession
        from runtime.start.rehearsal import Rehearsal

        started = time.perf_counter()
        replacing = self._job.replacing
        mine = usable_entries(cache.files, environment, replacing) if self._local == 0 else {}
        known = agreed(mine, self._team.gather)
        base = base_path(self._folder, number, self._local)
        write_base(base, known, environment)
        self._tuner.clear_cache()
        self._tuner.load_configs(str(base))
        self._saved = len(self._tuner.results)
        rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, self._device)
        prepared = time.perf_counter()
        session = AutotuneSession(self._device.torch_device, cache.runtime, skip_ops=cache.skip_ops)
        with self._device.side_stream():
            session.run(lambda: rehearsal.forward_all(cache.tuning_rows), "dummy")
        tuned = session.tuned[-1]
        if self._local == 0:
            self._tuner.save_configs(str(tuned_path(self._folder, number)))
        return {
            "known": sorted(known),
            "results": [asdict(result) for result in tuned.buckets],
            "prepare_seconds": prepared - started,
            "search_seconds": tuned.seconds,
        }

    def _watch(self, progress: Progress) -> None:
        if self._local == 0 and len(self._tuner.results) > self._saved:
            # An op is decided, on all workers alike: nobody has to measure it again, whatever happens now.
            self._saved = len(self._tuner.results)
            self._tuner.save_configs(str(tuned_path(self._folder, self._current)))
            self._reporter.say(TUNED, cache=self._current, entries=self._saved)
        self._reporter.say(PROGRESS, cache=self._current, **_finite(asdict(progress)))


def _peak_bytes(device: Device) -> int | None:
    return device.memory().peak_reserved if device.torch_device.type == "cuda" else None


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: a time that nobody knows yet is null."""
    return {name: None if value == float("inf") else value for name, value in fields.items()}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
