"""mem-report on this GPU: measured beside predicted, an OOM that it reports, a kill that it survives."""

import gc
import json
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.server.units import MIB
from tests.sgl_tune.running import PROGRAM, Ran, environment

# Dense: no kernels to compile before the first start.
SERVER = ("sglang", "serve", "meta-llama/Llama-3.1-8B", "--attention-backend", "triton")


def run(*arguments: object) -> Ran:
    """Run with all of the GPU's memory, and with time to load a model and look for remedies."""
    gc.collect()
    torch.cuda.empty_cache()
    command = [*PROGRAM, *map(str, arguments)]
    own = environment()
    own["PYTHONPATH"] = os.pathsep.join([own["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])  # FlashInfer's
    done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=300)
    return Ran(done.returncode, done.stdout, done.stderr)


def _measured(*flags: object, ours: Sequence[object] = ()) -> dict[str, Any]:
    ran = run("mem-report", "--measure", "--format", "json", *ours, "--", *SERVER, *flags)
    assert ran.code in (0, 1), ran.err
    data: dict[str, Any] = json.loads(ran.out)
    return data


def test_every_peak_is_what_was_predicted() -> None:
    data = _measured("--cuda-graph-max-bs", "16", "--chunked-prefill-size", "1024")
    assert data["verdict"] == "fits" and data["source"] == "measured"
    rows = data["comparisons"][0]["rows"]
    peaks = [row for row in rows if row["what"].endswith("torch's peak")]
    assert len(peaks) >= 6
    for row in peaks:
        assert abs(row["predicted"] - row["other"]) <= max(0.03 * row["other"], 128 * MIB), row


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_both_ranks_of_a_server_are_measured_with_their_collectives(tmp_path: Path) -> None:
    small = ("--cuda-graph-max-bs", 16, "--chunked-prefill-size", 1024)
    files = ("--out", tmp_path / "run.jsonl", "--snapshot", tmp_path / "memory.pickle")
    data = _measured("--tp", 2, *small, ours=files)
    assert data["verdict"] == "fits", data["failure"]
    assert (tmp_path / "memory.pickle").exists() and (tmp_path / "memory.1.pickle").exists()
    assert [rank["rank_name"] for rank in data["ranks"]] == ["TP0", "TP1"]
    for row in data["comparisons"][0]["rows"]:
        if row["what"].endswith("torch's peak"):
            assert abs(row["predicted"] - row["other"]) <= max(0.03 * row["other"], 256 * MIB), row
    communicator = data["phases"][0]
    assert communicator["non_torch_bytes"] > 800 * MIB, "NCCL's buffers"
    files = [tmp_path / "run.jsonl", tmp_path / "run.1.jsonl"]
    assert all(run("mem-report", "--log", file).code == 0 for file in files)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_where_ranks_run_out_of_memory_none_is_waited_for(tmp_path: Path) -> None:
    data = _measured("--tp", 2, "--mem-fraction-static", "0.99", ours=("--out", tmp_path / "run.jsonl"))
    assert data["verdict"] == "oom" and data["oom"]["tried_bytes"] > 0


def test_an_out_of_memory_is_reported_with_its_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    data = _measured("--mem-fraction-static", "0.99", ours=("--out", file))
    assert data["verdict"] == "oom" and data["oom"]["tried_bytes"] > 0 and data["oom"]["where"]
    assert data["what_if"]["predicted, cold"]["verdict"] == "oom"
    snapshot = pickle.loads((tmp_path / "run.snapshot.pickle").read_bytes())
    assert snapshot["segments"]
    assert run("mem-report", "--log", file).ends(1, out=f"OUT OF MEMORY in {data['oom']['phase']}")


def test_a_kill_loses_only_the_phase_in_progress(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    command = [*PROGRAM, "mem-report", "--measure", "--out", str(file), "--", *SERVER]
    child = subprocess.Popen(command, env=environment(), start_new_session=True)
    deadline = time.monotonic() + 120
    while not (file.exists() and '"begin", "phase": "prefill graphs"' in file.read_text()):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    ran = run("mem-report", "--log", file, "--format", "json")
    data = json.loads(ran.out)
    assert (data["verdict"], data["failed_in"]) == ("unfinished", "prefill graphs")
    assert data["phases"][-1]["name"] == "attention backend"
