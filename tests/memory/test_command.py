"""The command as its users run it: predictions, sweeps, pages, logs and runs that died."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.running import Ran, run_here, run_on_terminal
from tests.sgl_tune.schemas import schema_faults

DEMO = ("mem-report", "--model", "demo-moe", "--moe-runner-backend", "triton", "--max-running-requests", "8")
LOG = """\
[2026-08-02 10:00:00] server_args=ServerArgs(model_path='demo-moe', tp_size=1, mem_fraction_static=0.8, \
moe_runner_backend='triton', attention_backend='fa3', cuda_graph_max_bs=8, max_running_requests=None, \
max_total_tokens=16000000)
[2026-08-02 10:00:01] Load weight begin. avail mem=78.40 GB
[2026-08-02 10:00:02] Load weight end. type=Demo, avail mem=78.38 GB, mem usage=0.02 GB.
[2026-08-02 10:00:03] KV Cache is allocated. #tokens: 16000000, K size: 30.00 GB, V size: 30.00 GB
[2026-08-02 10:00:03] Memory pool end. avail mem=15.60 GB
[2026-08-02 10:00:04] Running FlashInfer autotune with cache: x
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of \
79.11 GiB of which 14.00 GiB is free. Including non-PyTorch memory, this process has 65.11 GiB memory in \
use. Of the allocated memory 64.00 GiB is allocated by PyTorch, and 0.50 GiB is reserved by PyTorch but \
unallocated.
"""


def _json(ran: Ran) -> dict[str, Any]:
    assert ran.code in (0, 1), ran.err
    data: dict[str, Any] = json.loads(ran.out)
    assert schema_faults("mem-report", data) == []
    return data


def test_json_of_a_prediction_has_its_phases_and_what_ifs() -> None:
    ran = run_here(*DEMO, "--gpu", "l40s", "--what-if", "no-graphs", "--ranks", "0", "--format", "json")
    data = _json(ran)
    assert ran.code == 0 and data["schema_version"] == 2
    assert (data["verdict"], data["source"], data["gpu"]) == ("fits", "core", "L40S")
    names = [phase["name"] for phase in data["phases"]]
    assert names[:3] == ["communicator", "weights", "kv pool"] and names[-1] == "ready"
    assert data["phases"][2]["largest"][0].keys() >= {"bytes", "what", "where"}
    assert "decode graphs" not in [p["name"] for p in data["what_if"]["no-graphs"]["phases"]]
    assert data["oom"] is None and data["constants"][0]["source"]
    unsaid = {name for name, value in data["sizes"].items() if value is None}
    assert unsaid == {"states", "state_bytes"}, "the start tells every size: no layer is recurrent"


def test_a_start_that_dies_exits_with_1_and_says_what_would_help(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ran = run_here(*DEMO, "--gpu", "l40s", "--mem-fraction-static", "0.995",
              "--context-length", "1024", "--html", page)  # fmt: skip
    assert ran.code == 1, ran.out + ran.err
    assert "OUT OF MEMORY, inside the error bar, in" in ran.out
    assert "CUDA out of memory. Tried to allocate" in ran.out
    assert "--mem-fraction-static 0.9" in ran.out.partition("What would help")[2]
    text = page.read_text()
    assert not re.search(r"(src|href)\s*=\s*.?https?:|url\(.?https?:|@import|fetch\(", text)
    assert text.count("<script") == 2 and "out of memory" in text.lower()


def test_a_sweep_ends_with_the_highest_that_fits() -> None:
    ran = run_here(
        *DEMO, "--gpu", "l40s", "--context-length", "1024", "--sweep", "mem-fraction-static=0.9:0.998:0.049"
    )
    assert "Highest that fits: mem-fraction-static=0.949" in ran.out, ran.out


def test_on_a_terminal_no_line_is_wider_than_80_columns() -> None:
    ran = run_on_terminal(*DEMO, "--gpu-memory", "44.4GiB", columns=80)
    told = re.sub(r"\x1b\[\d+m", "", ran.out.replace("\r\n", "\n"))
    lines = [line.rpartition("\r")[2] for line in told.split("\n")]  # progress is written over
    assert any("█" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_log_alone_says_which_start_to_predict(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG)
    ran = run_here("mem-report", "--log", log, "--gpu", "h100", "--format", "json")
    told = json.loads(ran.out)
    assert schema_faults("mem-report-log", told) == [] and (ran.code, told["verdict"]) == (1, "oom")
    data = told["predicted"]
    rows = {row["what"]: row for row in data["comparisons"][0]["rows"]}
    free = rows["free after weights"]
    assert free["predicted"] == pytest.approx(free["other"], rel=0.01)
    assert {"free after kv pool", "taken by weights", "kv tokens"} <= rows.keys()
    assert data["total_bytes"] == round(79.11 * (1 << 30))
    assert told["cause"]["what"] == "the KV pool leaves too little for the autotune dummy run"


@pytest.mark.parametrize("option", ["--html", "--snapshot"])
def test_a_place_that_cannot_be_written_is_said(option: str) -> None:
    ran = run_here(*DEMO, "--gpu", "l40s", option, "/proc/nothing/here")
    assert ran.code == 2 and "/proc/nothing/here cannot be written" in ran.err


def test_a_run_that_was_killed_is_reported_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    phase = {
        "name": "weights", "depth": 0, "seconds": 1.0, "persistent_bytes": 1 << 30, "peak_bytes": 1 << 30,
        "transient_bytes": 0, "allocated_bytes": 1 << 30, "reserved_bytes": 1 << 30,
        "reserved_peak_bytes": 1 << 30, "free_at_peak_bytes": 9 << 30, "non_torch_bytes": 0, "largest": [],
    }  # fmt: skip
    records = [
        {"event": "run", "schema_version": 1, "device": "cuda", "total_bytes": 10 << 30, "gpu": "H200"},
        {"event": "begin", "phase": "weights", "depth": 0},
        {"event": "end", **phase},
        {"event": "begin", "phase": "kv pool", "depth": 0},
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"event": "en')
    ran = run_here("mem-report", "--log", file)
    assert ran.code == 1 and "UNFINISHED: the run ended in kv pool" in ran.out
    assert "weights" in ran.out and "! kv pool: not finished" in ran.out
    data = _json(run_here("mem-report", "--log", file, "--format", "json"))
    assert (data["verdict"], data["failed_in"], data["source"]) == ("unfinished", "kv pool", "measured")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "demo-moe", "--what-if", "nonsense"), "--what-if 'nonsense'"),
        (("--model", "demo-moe", "--gpu", "h9000"), "h9000"),
        (("--model", "demo-moe", "--gpu-memory", "lots"), "lots"),
        (("--model", "demo-moe", "--ranks", "9"), "write distinct, all or one number"),
        (("--measure", "--log", "/dev/null"), "/dev/null"),
        (("--log", "/nonexistent/run.jsonl"), "cannot be read"),
        (("--measure", "--model", "demo-moe"), "there is none here"),
        ((), "no model is named"),
        (("--model", "demo-moe", "--snapshot", "/tmp/x"), "--snapshot needs a server"),
        (
            ("--model", "demo-moe", "--tp", "4", "--what-if", "ep=3"),
            "--ep 3: MoE backend flashinfer_cutlass wants",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments: tuple[str, ...], message: str) -> None:
    ran = run_here("mem-report", *arguments)
    assert ran.code == 2 and message in ran.err and "Traceback" not in ran.err


def test_experts_that_the_core_lacks_are_not_known() -> None:
    ran = run_here("mem-report", "--model=DeepSeek-V3", "--tp=16", "--moe-runner-backend=flashinfer_cutlass")
    assert ran.code == 1 and "not known: --moe-runner-backend flashinfer_cutlass" in ran.err
