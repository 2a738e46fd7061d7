"""Phases: their numbers, nesting, failures, and the file that survives a kill."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import pytest
import torch

from runtime.devices.cpu import Cpu
from runtime.devices.meta import Meta
from runtime.devices.readings import parse_out_of_memory
from runtime.server.units import GIB, MIB
from runtime.simulate.constants import H200
from runtime.start.phases import PhaseRecorder
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.predict import read_run

ROOT = Path(__file__).parents[2]


def _bytes(mib: int, device: str = "meta") -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


@pytest.mark.parametrize("device", [Cpu(), Meta(1 << 40)], ids=["cpu", "meta"])
def test_a_phase_has_its_persistent_peak_and_transient_bytes(device: Cpu | Meta) -> None:
    recorder, kind = PhaseRecorder(device), device.torch_device.type
    with device.active():
        with recorder.phase("load"):
            weights = _bytes(40, kind)
            del_me = _bytes(8, kind)
            del del_me
        with recorder.phase("run"):
            _bytes(16, kind)
    load, run = recorder.phases
    assert (load.persistent_bytes, load.peak_bytes, load.transient_bytes) == (40 * MIB, 48 * MIB, 8 * MIB)
    assert (run.persistent_bytes, run.peak_bytes, run.transient_bytes) == (0, 56 * MIB, 16 * MIB)
    assert [held.bytes for held in load.largest] == [40 * MIB, 8 * MIB]
    assert [held.what for held in run.largest] == [f"empty [{16 * MIB}] uint8"]
    del weights


def test_free_at_peak_counts_what_torch_reserved_and_what_others_hold() -> None:
    device = Meta(1 << 40)
    with device.active():
        device.claim("context")
        recorder = PhaseRecorder(device)
        with recorder.phase("load"):
            _bytes(3)
    [phase] = recorder.phases
    context = H200.outside["context"].bytes
    assert phase.non_torch_bytes == context
    assert phase.reserved_peak_bytes == 20 * MIB
    assert phase.free_at_peak_bytes == (1 << 40) - context - 20 * MIB


def test_a_nested_peak_counts_for_its_parents() -> None:
    device = Meta(1 << 40)
    recorder = PhaseRecorder(device)
    with device.active(), recorder.phase("outer"):
        _bytes(5)
        with recorder.phase("inner"):
            _bytes(32)
        with recorder.phase("small"):
            _bytes(2)
        _bytes(7)
    inner, small, outer = recorder.phases
    assert [phase.peak_bytes for phase in (inner, small, outer)] == [32 * MIB, 2 * MIB, 32 * MIB]
    assert (inner.depth, outer.depth) == (1, 0)
    assert outer.largest == inner.largest


def test_a_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    device = Meta(1 << 40)
    recorder = PhaseRecorder(device, tmp_path / "run.jsonl", {"model": "tiny"})
    with device.active(), recorder.phase("outer"), recorder.phase("inner"):
        _bytes(5)
    recorder.close()
    run = read_run(tmp_path / "run.jsonl")
    assert run == recorder.run() and run.phases == tuple(recorder.phases)
    assert (run.about["model"], run.about["total_bytes"]) == ("tiny", 1 << 40)
    assert (run.failure, run.failed_in, run.unfinished) == (None, None, ())


def test_running_out_of_memory_is_told_with_its_numbers(tmp_path: Path) -> None:
    device = Meta(100 * MIB)
    recorder = PhaseRecorder(device, tmp_path / "run.jsonl")
    with device.active(), pytest.raises(torch.OutOfMemoryError), recorder.phase("outer"):
        held = _bytes(60)
        with recorder.phase("inner"):
            _bytes(50)
    recorder.close()
    run = read_run(tmp_path / "run.jsonl")
    assert run == recorder.run() and run.failed_in == "inner"
    assert run.failure is not None
    oom = run.failure.out_of_memory
    assert oom is not None
    assert (oom.tried_bytes, oom.free_bytes, oom.allocated_bytes) == (50 * MIB, 40 * MIB, 60 * MIB)
    said = "SimulatedOutOfMemory: CUDA out of memory. Tried to allocate 50.00 MiB"
    assert run.failure.error.startswith(said)
    assert run.failure.at_failure.peak_bytes == 60 * MIB
    del held


def test_another_error_is_told_and_raised(tmp_path: Path) -> None:
    recorder = PhaseRecorder(Cpu(), tmp_path / "run.jsonl")
    with pytest.raises(ZeroDivisionError), recorder.phase("work"):
        _ = 1 / 0
    recorder.close()
    run = read_run(tmp_path / "run.jsonl")
    assert run.failure is not None
    assert (run.failed_in, run.failure.out_of_memory) == ("work", None)


def test_a_killed_process_leaves_what_it_completed(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from runtime.start.phases import PhaseRecorder; from runtime.devices.cpu import Cpu\n"
        "recorder = PhaseRecorder(Cpu(), Path(sys.argv[1]))\n"
        "with recorder.phase('first'): pass\n"
        "with recorder.phase('second'):\n"
        "    print('in', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run = read_run(out)
    assert [phase.name for phase in run.phases] == ["first"]
    assert run.failed_in == "second"


class TestDamage:
    def _run(self, path: Path) -> list[str]:
        recorder = PhaseRecorder(Cpu(), path)
        for name in ("one", "two"):
            with recorder.phase(name):
                pass
        recorder.close()
        return path.read_text().splitlines(keepends=True)

    def test_a_torn_last_line_is_dropped(self, tmp_path: Path) -> None:
        path = tmp_path / "run.jsonl"
        lines = self._run(path)
        path.write_text("".join(lines[:-1]) + lines[-1][:20])
        run = read_run(path)
        assert [phase.name for phase in run.phases] == ["one"]
        assert run.failed_in == "two"

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda lines: ["{broken\n", *lines], "line 1 is no record"),
            (lambda lines: [*lines[:2], "[]\n", *lines[2:]], "line 3 is no record"),
            (lambda lines: lines[1:], "its first line does not say"),
            (lambda lines: [], "its first line does not say"),
            (lambda lines: [lines[0].replace('version": 1', 'version": 7')], "schema_version 7"),
            (lambda lines: [*lines[:2], '{"event": "end", "name": "one"}\n', lines[3]], "lacks or misplaces"),
            (lambda lines: [lines[0], *lines[2:]], "lacks or misplaces"),
            (lambda lines: ["\x00\x01\n"], "line 1 is no record"),
        ],
    )
    def test_other_damage_is_named(self, tmp_path: Path, damage, message: str) -> None:
        path = tmp_path / "run.jsonl"
        path.write_text("".join(damage(self._run(path))))
        with pytest.raises(UsageError, match=message):
            read_run(path)

    def test_every_line_is_json(self, tmp_path: Path) -> None:
        events = [json.loads(line)["event"] for line in self._run(tmp_path / "r")]
        assert events == ["run", "begin", "end", "begin", "end"]


def test_torchs_message_is_parsed() -> None:
    message = (
        "CUDA out of memory. Tried to allocate 6.38 GiB. GPU 0 has a total capacity of 178.35 GiB of which "
        "2.98 GiB is free. Process 1 has 175.37 GiB memory in use. Of the allocated memory 170.11 GiB is "
        "allocated by PyTorch, with 300.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.20 GiB "
        "is reserved by PyTorch but unallocated."
    )
    oom = parse_out_of_memory(message, "logits_processor.py:1")
    assert oom is not None
    sizes = [round(size / GIB, 2) for size in astuple(oom)[:5]]
    assert sizes == [6.38, 2.98, 178.35, 170.11, 1.2], "tried, free, total, allocated, only reserved"
    assert parse_out_of_memory("something else") is None
