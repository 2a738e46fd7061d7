"""A worker of a search: it joins its team and does one job."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.flashinfer.versions import flashinfer_of
from runtime.server.errors import ConfigError
from sgl_tune.cache.loader import Ignored, Loaded, could_be_tactic, load_document
from sgl_tune.cache.record import BrokenCacheFile, read_cache_file
from sgl_tune.errors import SglTuneError, WorkFailed
from sgl_tune.processes.child import Child, leave
from sgl_tune.warm.devices import check_importable
from sgl_tune.warm.events import DONE, ERROR, GATHER, JOB, PROGRESS, START, TUNED
from sgl_tune.warm.job import make_device, only_for, read_job, tuned_path

if TYPE_CHECKING:
    from runtime.autotune.progress import Progress
    from runtime.autotune.session import Tuned
    from runtime.autotune.team import Team
    from runtime.autotune.tuner import SearchTuner
    from sgl_tune.warm.job import Job


Say = Callable[..., None]
Entries = dict[str, Any]


def main(child: Child) -> None:
    serve(child, Search)


def serve(child: Child, searching: type[Search]) -> None:
    told, started = child.command(), time.perf_counter()
    only_for(told["device"])
    from runtime.autotune.team import Team

    def exchange(mine: Any) -> list[Any]:
        child.say(GATHER, value=mine)
        return child.command()["values"]

    team = Team(told["rank"], told["size"], exchange if told["size"] > 1 else None)
    command = child.command()
    assert command["kind"] == JOB
    with failures_told(child):
        search = searching(read_job(command["job"]))
        search.prepare(command["local"], team, child.say, started)
        report = search.run()
    child.say(DONE, report=report)


@contextmanager
def failures_told(child: Child) -> Iterator[None]:
    """Report any failure in this block to the launcher, which prints one line."""
    try:
        yield
    except Exception as error:
        child.say(ERROR, **explained(error))
        if not _is_known(error):
            raise
        leave(1)


def explained(error: Exception) -> dict[str, Any]:
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

    return isinstance(error, AutotuneError | ConfigError | SglTuneError)


class Search:
    """The job on this process's device."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self, local: int, team: Team, say: Say, started: float) -> None:
        check_importable()
        self._import()
        from runtime.autotune.session import install_tuner

        imported = time.perf_counter()
        self._local, self._team, self._say = local, team, say
        gpus = self._job.gpus
        self._device = make_device(self._job.device, gpus[local % len(gpus)] if gpus else 0)
        say(START, pid=os.getpid())
        self._tuner: SearchTuner = install_tuner(self._device.torch_device, team)
        self._tuner.watch = self._watch
        self._device.reset_peak()
        self._saved = 0
        self._current = 0
        self._steps = {"imports": imported - started, "device": time.perf_counter() - imported}

    def run(self) -> dict[str, Any]:
        from flashinfer.autotuner import _collect_metadata

        from runtime.autotune.layer import SEED, SKEWS

        started = time.perf_counter()
        environment = _collect_metadata()
        self._steps["device"] += time.perf_counter() - started
        reports = []
        for number, cache in enumerate(self._job.caches):
            self._current = number
            reports.append(self._tune(number, cache, environment))
        for step in ("prepare", "search"):
            self._steps[step] = sum(report[f"{step}_seconds"] for report in reports)
        routings = {"seed": SEED, "skews": SKEWS} if self._tuner.settled_in_layers else {}
        told = {"environment": environment, "caches": reports, "steps": self._steps, "routings": routings}
        is_gpu = self._device.torch_device.type == "cuda"
        return {**told, "peak_bytes": self._device.memory().peak_reserved if is_gpu else None}

    def _import(self) -> None:
        from runtime.start import rehearsal  # noqa: F401

    def _asking(self, cache: Any) -> Callable[[], Tuned]:
        """Return a function that makes all lookups of the cache under the tuner."""
        from runtime.autotune.session import AutotuneSession
        from runtime.start.rehearsal import Rehearsal

        rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, self._device)
        session = AutotuneSession(self._device.torch_device, cache.runtime, skip_ops=cache.skip_ops)

        def ask() -> Tuned:
            session.run(lambda: rehearsal.forward_all(cache.tuning_rows), "dummy")
            return session.tuned[-1]

        return ask

    def _tune(self, number: int, cache: Any, environment: dict[str, str]) -> dict[str, Any]:
        started = time.perf_counter()
        replacing = self._job.replacing
        mine = usable_entries(cache.files, environment, replacing) if self._local == 0 else {}
        known = agreed(mine, self._team.gather)
        base = self._job.folder / f"base.{number}.{self._local}.json"  # for FlashInfer's loader
        base.write_text(json.dumps({"_metadata": environment, **known}))
        self._tuner.clear_cache()
        self._tuner.load_configs(str(base))
        self._saved = len(self._tuner.results)
        ask = self._asking(cache)
        prepared = time.perf_counter()
        with self._device.side_stream():
            tuned = ask()
        if self._local == 0:
            self._tuner.save_configs(str(tuned_path(self._job.folder, number)))
        return {
            "known": sorted(known),
            "results": [_finite(asdict(result)) for result in tuned.buckets],
            "prepare_seconds": prepared - started,
            "search_seconds": tuned.seconds,
        }

    def _watch(self, progress: Progress) -> None:
        if self._local == 0 and len(self._tuner.results) > self._saved:
            # All workers have decided this op: it is kept even if the search breaks off later.
            self._saved = len(self._tuner.results)
            self._tuner.save_configs(str(tuned_path(self._job.folder, self._current)))
            self._say(TUNED, cache=self._current, entries=self._saved)
        self._say(PROGRESS, cache=self._current, **_finite(asdict(progress)))


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace infinity by null, because JSON has no infinity. Such a time is not known yet."""
    return {name: None if value == float("inf") else value for name, value in fields.items()}


def usable_entries(files: Sequence[Path], environment: Mapping[str, str], replacing: bool) -> Entries:
    """Return the entries of all files that a server here would load and run. Broken files are skipped; the
    writer sets them aside. An entry whose tactic no kernel accepts is tuned again."""
    found: Entries = {}
    here = flashinfer_of(environment["flashinfer_version"])
    for path in files:
        try:
            file = read_cache_file(path)
        except (FileNotFoundError, BrokenCacheFile):
            continue
        outcome = load_document(file.document, environment, here)
        if isinstance(outcome, Ignored) and outcome.hard and not replacing:
            raise _conflict(path, outcome)
        if isinstance(outcome, Loaded):
            runs = [key for key, (_, tactic) in outcome.entries.items() if could_be_tactic(tactic)]
            found = {**{key: file.entries[key] for key in runs if key in file.entries}, **found}
    return found


def agreed(entries: Entries, gather: Callable[[Entries], list[Entries]]) -> Entries:
    """Return the entries of all nodes. If nodes differ in an entry, the first worker's counts for all."""
    union: Entries = {}
    for others in gather(entries):
        union = {**others, **union}
    return union


def _conflict(path: Path, outcome: Ignored) -> WorkFailed:
    name, mismatch = next(iter(outcome.hard.items()))
    return WorkFailed(
        f"{path} was tuned in another environment: {name} is {mismatch.saved!r} there, "
        f"{mismatch.current!r} here; a server here would ignore it and never save over it",
        "--replace writes it anew for this environment; or give another --cache-dir",
    )
