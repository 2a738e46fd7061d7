"""What surrounds a dummy forward: files, modes, the table that serving finds, and errors with a way out."""

import json
import sys
from collections.abc import Iterator
from inspect import unwrap
from pathlib import Path
from types import FrameType
from typing import Any

import flashinfer
import pytest
import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.errors import AutotuneError
from runtime.autotune.progress import Progress
from runtime.autotune.record import record_asked
from runtime.autotune.session import AutotuneSession
from runtime.devices.cpu import Cpu
from runtime.server.parallel import ParallelConfig
from runtime.start.rehearsal import Rehearsal
from tests.runtime.configs import runtime_config
from tests.runtime.starts import make_preset
from tests.runtime.tuned_layer import BUCKETS, Layer, installed

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_tuner() -> Iterator[None]:
    with installed(None):
        yield


def _session(**options: Any) -> AutotuneSession:
    return AutotuneSession(CPU, runtime_config(moe_runner_backend="flashinfer_cutlass"), **options)


def _saved(session: AutotuneSession, cache: Path) -> dict[str, list[object]]:
    session.tuner.save_configs(str(cache))
    return {key: value for key, value in json.loads(cache.read_text()).items() if not key.startswith("_")}


def test_every_bucket_is_tuned_saved_and_found(tmp_path: Path) -> None:
    session, layer = _session(), Layer()
    session.run(layer, "decode")
    (tuned,) = session.tuned
    assert (tuned.what, tuned.calls, len(tuned.buckets), tuned.failed) == ("decode", 2, 2 * len(BUCKETS), ())
    assert not session.tuner.stats.failed_tactics
    entries = _saved(session, tmp_path / "rank.json")
    assert set(entries) == layer.keys()
    hot = ["cuda_graph_profile_replays", None, "l2_cache_policy", "hot"]
    assert all(value[0] == "CpuGroupedGemm" and value[2] == hot for value in entries.values())
    with record_asked() as record:
        for rows in range(1, 20):
            layer(rows)
    assert not record.missed and record.keys("serving") == layer.keys()


def test_one_context_of_flashinfer_holds_a_whole_forward() -> None:
    """A second context inside would, when it ends, forget which ops the first one skips."""
    session, context, calls = _session(), unwrap(flashinfer.autotune).__code__, []

    def note(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is context and event == "call":
            calls.append(frame)

    sys.setprofile(note)
    try:
        session.run(Layer(), "decode")
    finally:
        sys.setprofile(None)
    assert len(calls) == 2  # of a generator: once to enter, once to leave


def test_a_second_start_measures_nothing(tmp_path: Path) -> None:
    first = _session()
    first.run(Layer(), "decode")
    entries = _saved(first, tmp_path / "rank.json")
    AutoTuner._instance = None
    session = _session()
    session.tuner.load_configs(str(tmp_path / "rank.json"))
    session.run(Layer(), "decode")
    assert session.tuned[0].buckets == () and session.tuned[0].calls == 2
    assert _saved(session, tmp_path / "again.json") == entries


def test_a_larger_batch_tunes_only_what_is_new(tmp_path: Path) -> None:
    _session().run(Layer(), "decode")
    session = _session()
    session.run(Layer(most=32), "extend")
    assert [bucket.bucket for bucket in session.tuned[0].buckets] == [32, 32]
    assert len(_saved(session, tmp_path / "rank.json")) == 2 * (len(BUCKETS) + 1)


def test_a_draft_keeps_the_target_s_table(tmp_path: Path) -> None:
    target, draft, second = Layer(), Layer(experts=4), _session()
    _session().run(target, "decode")
    second.run(draft, "draft")
    with record_asked() as record:
        target(), draft()
    assert not record.missed
    assert draft.keys() | target.keys() <= set(_saved(second, tmp_path / "draft.json"))


def test_skipped_ops_are_not_tuned() -> None:
    session = _session(skip_ops=("sgl_tune::cpu_grouped_gemm2",))
    session.run(Layer(), "decode")
    assert {bucket.op for bucket in session.tuned[0].buckets} == {"sgl_tune::cpu_grouped_gemm1"}


def test_progress_tells_each_step_of_each_bucket() -> None:
    told: list[Progress] = []
    session = _session()
    session.tuner.watch = told.append
    session.run(Layer(), "decode")
    steps = {(progress.op[-5:], progress.bucket, progress.stage) for progress in told}
    stages = ("screen", "play_off")
    assert steps == {(op, b, stage) for op in ("gemm1", "gemm2") for b in BUCKETS for stage in stages}
    assert all(0 < progress.best_ms <= progress.default_ms for progress in told)
    assert all(1 <= progress.left <= progress.tactics for progress in told)


def test_a_forward_that_asks_for_nothing_is_an_error() -> None:
    with pytest.raises(AutotuneError, match=r"decode forward asked FlashInfer for nothing.*_cutlass"):
        _session().run(lambda: None, "decode")


def test_a_failing_forward_leaves_no_mode() -> None:
    def fail() -> None:
        Layer()()
        raise ValueError("broken layer")

    session = _session()
    with pytest.raises(ValueError, match="broken layer"):
        session.run(fail, "decode")
    assert not session.tuner.is_tuning_mode and not session.tuner._v2_local.active
    assert session.tuned == []


def test_the_first_tuner_stays() -> None:
    first = _session().tuner
    assert isinstance(first, CpuSearchTuner) and _session().tuner is first


def test_a_rehearsal_tunes_what_it_looks_up(tmp_path: Path) -> None:
    """Run one layer of each kind of a tp 8, dp 8 deployment for one virtual rank, through the model."""
    model = make_preset("demo-moe")
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    flags = {"moe_runner_backend": "flashinfer_cutlass", "mem_fraction_static": 0.5}
    runtime = runtime_config(prefill_tokens=8, **flags)
    session, rehearsal = AutotuneSession(CPU, runtime), Rehearsal(model, parallel, runtime, Cpu())
    session.run(lambda: rehearsal.forward(16), "decode")
    assert [tuned.what for tuned in session.tuned] == ["decode"]
    assert len(session.tuned[0].buckets) == 2 * 7  # 1, 2, 4 .. 64 tokens: a chunk of 8 from each of 8 ranks
    _saved(session, tmp_path / "rank.json")
    AutoTuner._instance = None
    AutoTuner.get().load_configs(str(tmp_path / "rank.json"))
    with record_asked() as record:
        rehearsal.forward(16)
    assert record.hits == len(record.asked) == 2
