"""`sgl-tune start-report` as it is called: formats, limits, comparisons, and whatever a file may hold."""

import gzip
import json
import os
import random
import re
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from sgl_tune.start_report.timeline import PHASES, UNEXPLAINED
from tests.sgl_tune.running import PROGRAM, Ran, environment, run, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.start_report.logs import READY, entry, flashinfer, head, loaded, served

TUNED = (
    entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
    + flashinfer(24, "Building JIT module norm; this can take several minutes on first use.")
    + flashinfer(64, "[Autotuner]: Autotuning process starts ...")
    + "[AutoTuner]: Tuning trtllm::fused_moe::gemm1: 100%|####| 21/21 [00:16<00:00,  1.31profile/s]\n"
    + flashinfer(80, "[Autotuner]: Autotuning process ends")
    + flashinfer(80, "[Autotuner]: Saved 42 configs to /c/rank.json (42 new, 0 from previous config)")
    + entry(80, "FlashInfer autotune completed.")
)
WARM = (
    entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
    + flashinfer(23, "[Autotuner]: Loaded 42 configs from /c/rank.json")
    + entry(24, "FlashInfer autotune completed.")
)


def _log(folder: Path, text: str | bytes, name: str = "server.log") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    return _log(tmp_path, head() + loaded() + TUNED + served(86), "cold.log")


@pytest.fixture
def warm(tmp_path: Path) -> Path:
    return _log(tmp_path, head() + loaded() + WARM + served(30), "warm.log")


_json = partial(told, "start-report", code=None)


def test_what_was_built_and_what_was_loaded_is_said(cold: Path, warm: Path) -> None:
    before, after = _json(cold), _json(warm)
    assert before["profiled"] == {"trtllm::fused_moe::gemm1": 21} and before["compiled"] == ["norm"]
    tactics = next(phase for phase in before["phases"] if phase["name"] == "tactics")
    assert (tactics["hit"], tactics["store"], tactics["seconds"]) == (False, "tactics", 17)
    assert "sgl-tune warm" in tactics["remedy"] and before["caches"][0]["new_entries"] == 42
    used = next(phase for phase in after["phases"] if phase["name"] == "tactics")
    assert (used["hit"], used["saves_seconds"]) == (True, 0.0)
    assert after["caches"] == [
        {"path": "/c/rank.json", "loaded": True, "entries": 42, "new_entries": None, "why_not": None}
    ]


def test_a_file_of_another_environment_is_named_with_its_reason(tmp_path: Path) -> None:
    why = "was created in a different environment (gpu: H100 != H200). Ig"
    refused = flashinfer(23, f"[Autotuner]: Cache file /c/r.json {why}")
    report = _json(_log(tmp_path, head() + loaded() + refused + TUNED + served(86)))
    shown = next((f["path"], f["loaded"], f["why_not"]) for f in report["caches"])
    assert shown == ("/c/r.json", False, "gpu: H100 != H200")


def test_the_saving_is_predicted_before_and_held_against_what_came(cold: Path, warm: Path) -> None:
    report = _json(warm, "--against", cold)
    against = report["against"]
    assert against["predicted_seconds"] == pytest.approx(40 + 21 / 1.31, abs=0.001)
    assert against["saved_seconds"] == 56
    assert against["not_compiled_again"] == ["norm"]
    gone = {one["phase"]: one["difference"] for one in against["changes"]}
    assert gone["FlashInfer JIT"] == -40
    order = [*PHASES, UNEXPLAINED]
    assert [*gone] == sorted(gone, key=order.index), "as a start goes"
    for format in ("human", "markdown"):
        said = run_here("start-report", warm, "--against", cold, "--format", format).out
        assert "56.0 s saved, 56.0 s were predicted" in said and "gone" in said


@pytest.mark.parametrize(("most", "code"), [("120s", 0), ("2min", 0), ("60s", 1)])
def test_a_limit_is_an_exit_code(cold: Path, most: str, code: int) -> None:
    assert run_here("start-report", cold, "--max", most).code == code


def test_quiet_and_markdown_show_the_seconds(cold: Path) -> None:
    assert run_here("start-report", cold, "-q").out == "89.000\n"
    shown = run_here("start-report", cold, "--format", "markdown").out
    assert shown.startswith("### ready after 89.0 s")
    assert "| autotune | 23.0 s | 17.0 s | ##### | tactics | no |" in shown


def test_the_page_holds_the_report_and_fetches_nothing(cold: Path, warm: Path, tmp_path: Path) -> None:
    ran = run_here("start-report", warm, "--against", cold, "--html", tmp_path / "page.html")
    assert (ran.code, ran.err) == (0, f"{tmp_path / 'page.html'}: one page, for a browser\n")
    page = (tmp_path / "page.html").read_text()
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert data["against"]["saved_seconds"] == 56 and data["title"] == "The start in warm.log"
    assert not re.search(r"<(link|img|iframe)[^>]+(https?:|//)|@import|url\(|fetch\(|<script[^>]+src", page)
    assert "{{" not in page and "innerHTML" not in page


def test_a_log_is_the_same_however_it_comes(cold: Path, tmp_path: Path) -> None:
    plain = _json(cold)
    text = cold.read_bytes()
    zipped = tmp_path / "log.gz"
    zipped.write_bytes(gzip.compress(text))
    assert _json(zipped) == plain
    words = [*PROGRAM, "start-report", "-", "--format", "json"]
    done = subprocess.run(words, input=text, capture_output=True, env=environment())
    assert json.loads(done.stdout) == plain
    lines = text.decode().splitlines(keepends=True)
    for prefix in ("[pod/chat-0/sglang] ", "sglang-1  | ", "\x1b[32m"):
        assert _json(_log(tmp_path, "".join(prefix + line for line in lines))) == plain, prefix


def test_a_start_that_is_not_ready_exits_with_1_and_names_its_phase(tmp_path: Path) -> None:
    text = head() + loaded("TP0") + entry(10, "Init torch distributed begin.", "TP1") + entry(90, "x", "TP0")
    ran = run_here("start-report", _log(tmp_path, text))
    assert ran.code == 1 and "not ready after 90.0 s: stands in communicator" in ran.out
    assert "the file itself was last written less than a minute ago" in ran.out
    words = ran.out[ran.out.index("last line of each rank") :].splitlines()
    assert "server" in words[1] and "TP1: silent for the last 80.0 s: Init torch" in words[2]


def test_ranks_with_the_same_last_words_share_a_line(tmp_path: Path) -> None:
    text = head() + loaded("TP0") + loaded("TP1") + loaded("TP2") + entry(90, "x" * 300, "TP3")
    words = run_here("start-report", _log(tmp_path, text)).out.partition("last line of")[2].splitlines()
    (shared,) = (line for line in words if "Memory pool end" in line)
    assert shared.startswith("  TP0 and 2 more: silent for the last 67.0 s") and max(map(len, words)) < 160


def test_two_pods_without_names_show_no_seconds_and_a_clock_without_a_year_does(tmp_path: Path) -> None:
    begun = [entry(second, "Load weight begin.", "TP0") for second in range(4)]
    pods = "".join(f"2026-07-{day}T10:00:0{n}Z {begun[n]}" for n in range(4) for day in (14, 15))
    ran = run_here("start-report", _log(tmp_path, pods))
    assert ran.code == 1 and ran.out.startswith("no seconds are known: lines of several clocks")
    lines = "[12-11 17:47:40 TP0] Load weight begin.\n[12-11 17:52:52] Rank 0 scheduler is dead.\n"
    ran = run_here("start-report", _log(tmp_path, lines))
    assert "not ready after 312.0 s" in ran.out and "longest silence: 312.0 s, then: Rank 0" in ran.out
    assert "last written" not in ran.out  # a death needs no guess whether the start still runs
    assert run_here("start-report", tmp_path / "server.log", "-q").out.startswith("DIED in weights on TP0")


def test_a_bar_counts_once_whether_its_line_is_whole_or_broken(tmp_path: Path) -> None:
    """Some collectors break lines at a carriage return, and tqdm writes the end of a bar twice."""
    bar = "[AutoTuner]: Tuning op:  {0}5%|##| {0}/4 [00:0{0}<00:00,  1.1profile/s]"
    steps = [bar.format(n) for n in (0, 1, 4, 4)]
    begin = head() + loaded() + entry(23, "Running FlashInfer autotune with cache: /c/r.json")
    for end in ("\r", "\n"):
        bars = (end.join(steps) + "\n") * 2
        report = _json(
            _log(tmp_path, begin + bars + entry(30, "FlashInfer autotune completed.") + served(31))
        )
        assert report["profiled"] == {"op": 8}


def test_the_nodes_of_one_server_are_one_start_and_replicas_are_several(tmp_path: Path) -> None:
    def pods(nodes: int) -> str:
        lines = []
        for pod, rank, weights in (("chat-0", "TP0", 10.0), ("chat-1", "TP1", 30.0)):
            text = entry(1, f"server_args={{'nnodes': {nodes}, 'node_rank': 0}}")
            text += loaded(rank, weights=weights)
            text += served(46) if pod == "chat-0" or nodes == 1 else ""
            lines += [f"[pod/{pod}/sglang] {line}" for line in text.splitlines(keepends=True)]
        return "".join(sorted(lines, key=lambda line: line.partition("] ")[2]))

    one = _json(_log(tmp_path, pods(2)))
    assert (one["starts"], one["ranks"], one["wall_seconds"]) == (1, 2, 48)
    assert {p["name"]: p["seconds"] for p in one["phases"]}["weights"] == 30
    assert _json(_log(tmp_path, pods(1)))["starts"] == 2


def test_a_start_without_a_server_is_ready_when_it_is_loaded(tmp_path: Path) -> None:
    """Only the model runner runs, under Python's own logging, which does not silence FlashInfer's lines."""
    text = (
        "".join(
            f"2026-08-02 10:00:{at},000 sglang.srt.model_executor.model_runner {words}\n"
            for at, words in (
                ("00", "Attention backend not specified."),
                ("01", "Load weight begin. avail mem=139.11 GB"),
                ("02", "Load weight end. elapsed=0.18 s"),
                ("02", "Memory pool end. avail mem=20.09 GB"),
                ("03", "Running FlashInfer autotune with cache: /c/r.json"),
            )
        )
        + flashinfer(4, "[Autotuner]: Autotuning process starts ...")
        + flashinfer(4, "Building JIT module norm; this can take several minutes on first use.")
        + flashinfer(46, "Building JIT module trtllm_utils; this can take several minutes on first use.")
        + flashinfer(50, "[Autotuner]: Autotuning process ends")
        + "2026-08-02 10:00:51,000 sglang.srt.x FlashInfer autotune completed.\nLOADED\n"
    )
    report = _json(_log(tmp_path, text), "--ready", "^LOADED")
    assert report["ready"] and report["compiled"] == ["norm", "trtllm_utils"]
    assert {p["name"]: p["seconds"] for p in report["phases"]}["FlashInfer JIT"] == pytest.approx(46)
    assert report["saves_seconds"] == pytest.approx(46) and report["unexplained_seconds"] == 0
    assert report["phases"][0]["name"] == "setup" and report["phases"][0]["seconds"] == 1


HOSTILE = {
    "empty": b"",
    "binary": random.Random(1).randbytes(200_000),
    "one line without an end": b"[2026-08-02 10:00:00] server_args=" + b"x" * 3_000_000,
    "no times": "".join(line.split("] ", 1)[-1] for line in (head() + loaded()).splitlines(True)).encode(),
    "no server": b"hello\n" * 1000,
    "half a gzip": gzip.compress((head() + loaded()).encode())[:-9],
    "no such day": b"[2026-13-45 99:99:99] Load weight begin.\n",
    "numbers without end": f"[2026-08-02 10:00:00] NCCL/RCCL warmup completed in {'9' * 5000}s\n".encode(),
    "the same line again": entry(1, "Load weight begin.").encode() * 60_000,
    "ranks without end": b"".join(entry(i, "Load weight begin.", f"TP{i}").encode() for i in range(3000)),
    "pods without end": b"".join(b"pod%d | " % i + entry(i, "x").encode() for i in range(20_000)),
    "ends before they begin": (entry(1, "Load weight end. elapsed=99999.0") * 3 + entry(2, READY)).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_file_holds_is_a_report_or_a_sentence(tmp_path: Path, name: str) -> None:
    began = time.monotonic()
    ran = run_here("start-report", _log(tmp_path, HOSTILE[name]), "--format", "json")
    assert time.monotonic() - began < 20
    judged = run_here("mem-report", "--log", tmp_path / "server.log")
    assert judged.code in (0, 1) or (judged.code == 2 and judged.err.startswith("error: "))
    if ran.out:
        report = json.loads(ran.out)
        assert report["attributed_seconds"] <= report["wall_seconds"] + 1e-6
        assert sum(phase["seconds"] for phase in report["phases"]) <= report["wall_seconds"] + 0.01
    else:
        assert ran.code == 2 and ran.err.startswith("error: ") and "bug" not in ran.err


@pytest.mark.parametrize("words", [(), ("a", "b"), ("a", "--stop-when-ready"), ("gone.log",), (".",)])
def test_wrong_usage_exits_with_2_and_an_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = run("start-report", *words, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith("error: ")


def test_a_hundred_megabytes_are_read_in_less_than_eight_seconds(tmp_path: Path) -> None:
    """The test reads thirty megabytes in less than a third of that time."""
    path = _log(tmp_path, head() + loaded() + served(31))
    batch = entry(40, f"Decode batch, #running-req: 21, #token: 1723, {'token usage: 0.00, ' * 3}", "TP0")
    with path.open("a") as log:
        for _ in range(30):
            log.write(batch * (1_000_000 // len(batch)))
    began = os.times()
    ran: Ran = run_here("start-report", path)
    used = os.times().user - began.user
    assert ran.code == 0 and used < 0.3 * 8
