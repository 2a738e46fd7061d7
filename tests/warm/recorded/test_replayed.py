"""Calls of a public function are recorded, replayed under the search in a worker, and proven in another."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.record.calls import Call
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.store import write_group
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.warm.job import CallCache, Job, read_job, tuned_path
from sgl_tune.warm.launch import Fleet, Workers
from sgl_tune.warm.proof import Proof, Prover
from sgl_tune.warm.result import Report, read_report
from tests.warm.recorded.on_cpu import HOW

BUCKETS = (1, 2, 4, 8)
Tuned = tuple[Job, Report, Mapping[str, Any]]


def job_for(private: Scratch, calls: tuple[Call, ...], root: Path) -> Job:
    files = (root / "rank_tp0_pp0_dp0.json", root / "rank_tp1_pp0_dp0.json")
    return Job(private.folder, (CallCache(calls, files),), "cpu", ())


def searched(private: Scratch, job: Job) -> Report:
    with Workers(HOW.worker, private, Fleet(1, "cpu", (), 120), HOW.python) as workers:
        return read_report(workers.run({"job": job.to_json()}, lambda *_: None))


def proven(private: Scratch, job: Job, entries: Mapping[str, Any], report: Report) -> Proof:
    written = write_group(list(job.caches[0].files), entries, report.environment)
    prover = Prover(private, "cpu", HOW)
    try:
        (proof,) = prover.prove(job, [written], 120, lambda: None)
    finally:
        prover.close()
    return proof


@pytest.fixture(scope="module")
def replayable(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    return tuple(call for call in calls if not call.unreplayable)


@pytest.fixture(scope="module")
def tuned(replayable: tuple[Call, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    """A job, its report, and the entries that were found."""
    with scratch() as private:
        job = job_for(private, replayable, tmp_path_factory.mktemp("tuned"))
        report = searched(private, job)
        yield job, report, read_cache_file(tuned_path(job.folder, 0)).entries


def test_a_call_is_recorded_once_with_what_it_asks(calls: tuple[Call, ...]) -> None:
    first, odd, unmarked, serving = calls
    assert (first.function, first.mode, first.unreplayable) == ("demo:experts", "tune", "")
    ops = [lookup.op for lookup in first.lookups]
    assert ops == ["sgl_tune::cpu_grouped_gemm1", "sgl_tune::cpu_grouped_gemm2"]
    assert all(tuple(bucket for bucket, _ in lookup.keys) == BUCKETS for lookup in first.lookups)
    assert first.contexts[0].arguments == {"tune_mode": True, "skip_ops": {"set": ["another"]}}
    assert first.cache.endswith("tactics.json") and not serving.cache
    assert odd.unreplayable == "it was given builtins.object"
    assert unmarked.unreplayable == "no public function of FlashInfer was called"
    assert unmarked.function == "demo:unmarked"
    assert serving.mode == "serve" and [len(lookup.keys) for lookup in serving.lookups] == [1, 1]


def test_arguments_are_data(calls: tuple[Call, ...]) -> None:
    x, ids, w13, w2, experts = calls[0].arguments
    assert x["tensor"]["shape"] == [8, 16] and experts == 4
    assert ids["tensor"]["values"] == [3, 1, 0, 2] * 4
    assert w13["tensor"]["storage"] == w2["tensor"]["storage"]
    assert w2["tensor"]["offset"] == 4 * 24 * 16
    assert calls[0].storages[w13["tensor"]["storage"]].bytes == 4 * (4 * 24 * 16 + 4 * 16 * 12)


def test_a_job_goes_to_a_worker_and_back(calls: tuple[Call, ...], tmp_path: Path) -> None:
    job = Job(tmp_path, (CallCache(calls, (tmp_path / "a.json",)),), "cuda", (0, 1), True)
    assert read_job(json.loads(json.dumps(job.to_json()))) == job


def test_all_asked_is_tuned_and_proven(private: Scratch, replayable: tuple[Call, ...], tuned: Tuned) -> None:
    """A call that only served is tuned for the keys that it asked for, and no others."""
    job, report, entries = tuned
    recorded = {key for call in replayable for key in call.keys}
    assert len(recorded) == 2 * (len(BUCKETS) + 1)
    assert report.caches[0].tuned_keys == recorded == set(entries)
    proof = proven(private, job, entries, report)
    assert proof.is_good, proof
    assert proof.asked == proof.hits == len(recorded)
    told = searched(private, job_for(private, replayable, job.caches[0].files[0].parent))
    assert told.caches[0].known == recorded and not told.caches[0].tuned_keys


def test_a_missing_entry_is_named_by_the_proof(
    private: Scratch, replayable: tuple[Call, ...], tuned: Tuned, tmp_path: Path
) -> None:
    _, report, entries = tuned
    lost, *_ = entries
    less = {key: entry for key, entry in entries.items() if key != lost}
    proof = proven(private, job_for(private, replayable, tmp_path), less, report)
    assert proof.misses == (lost,) and not proof.is_good and proof.profiled == {}


def test_calls_of_other_keys_fail_by_name(private: Scratch, calls: tuple[Call, ...], tmp_path: Path) -> None:
    first = calls[0]
    lookup = first.lookups[0]
    less = replace(first, lookups=(replace(lookup, keys=lookup.keys[:2]), *first.lookups[1:]))
    with pytest.raises(WorkFailed) as caught:
        searched(private, job_for(private, (less,), tmp_path))
    assert "demo:experts asks for more" in caught.value.message
    assert "2 are not in it" in caught.value.message
