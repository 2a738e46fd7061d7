"""Recorded starts replayed under the search on this machine's GPU: what is tuned, in how many seconds.

    PYTHONPATH=. python benchmarks/replayed.py RECORD.json... --out FOLDER

Each record is what `sgl-tune mem-report --record` writes. No SGLang is needed: torch and FlashInfer alone.
A record's line says how many keys were recorded and tuned, what failed, and the seconds of each stage.
Its files are written below FOLDER/NAME, as SGLang names them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runtime.record.record import Record
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.store import write_group
from sgl_tune.errors import SglTuneError
from sgl_tune.processes.command import THIS
from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.recorded.caches import caches_of
from sgl_tune.warm.job import CallCache, Job, tuned_path
from sgl_tune.warm.launch import Fleet, Workers
from sgl_tune.warm.proof import Prover, of_records
from sgl_tune.warm.result import read_report

HOW = of_records(THIS)


def replayed(record: Record, out: Path, private: Scratch, gpu: int, timeout: float) -> dict[str, Any]:
    planned, began = caches_of([record]), time.perf_counter()
    caches = tuple(
        CallCache(cache.replayable, tuple(out / path for path in cache.paths)) for cache in planned
    )
    job = Job(private.folder, caches, "cuda", (gpu,))
    prover = Prover(private, "cuda", HOW)
    with Workers(HOW.worker, private, Fleet(1, "cuda", (gpu,), timeout), HOW.python) as workers:
        found = workers.run({"job": job.to_json()}, lambda *_: None)
    report, searched = read_report(found), time.perf_counter()
    written = []
    for number, cache in enumerate(caches):
        entries = read_cache_file(tuned_path(job.folder, number)).entries
        written.append(write_group(list(cache.files), entries, report.environment))
    proofs = prover.prove(job, written, timeout, lambda: None)
    prover.close()
    recorded = {key for cache in caches for key in cache.keys}
    return {
        "recorded_keys": len(recorded),
        "tuned": sum(len(one.tuned_keys) for one in report.caches),
        "missing": sorted(recorded - {key for one in report.caches for key in one.tuned_keys | one.known}),
        "failed_buckets": [failure.to_json() for one in report.caches for failure in one.failed],
        "failed_tactics": sum(one.failed_tactics for one in report.caches),
        "not_replayable": [call.function for cache in planned for call in cache.left],
        "search_seconds": round(sum(one.seconds for one in report.caches), 3),
        "tune_seconds": round(searched - began, 3),
        "seconds": round(time.perf_counter() - began, 3),
        "peak_gib": round((report.peak_bytes or 0) / 2**30, 2),
        "steps": report.steps,
        "proofs": [asdict(proof) for proof in proofs],
        "proven": all(proof.is_good for proof in proofs),
        "files": [str(path) for one in written for path in one.paths],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300)
    asked = parser.parse_args()
    good = True
    for path in asked.records:
        try:
            record = Record.from_json(path.read_bytes())
            with scratch() as private:
                told = replayed(record, asked.out / path.stem, private, asked.gpu, asked.timeout)
            good = good and bool(told["proven"]) and not told["missing"]
        except SglTuneError as error:
            told, good = {"error": error.message, "remedy": error.remedy}, False
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / f"{path.stem}.report.json").write_text(json.dumps(told, indent=1))
        short = {name: value for name, value in told.items() if name not in ("proofs", "files", "steps")}
        print(path.stem, json.dumps(short), flush=True)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
