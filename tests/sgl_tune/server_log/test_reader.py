"""Start-up logs of several SGLang releases, whole, dead and hostile."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.server.units import GIB
from sgl_tune.errors import UsageError
from sgl_tune.server_log.log import ServerLog, read_server_log
from sgl_tune.server_log.reader import read_starts
from tests.sgl_tune.running import run_here

VLLM = b"(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0"
RELEASE_0_4 = """\
[2025-03-27 21:33:20 TP0] Init torch distributed ends. mem usage=0.33 GB
[2025-03-27 21:33:20 TP0] Load weight begin. avail mem=139.21 GB
[2025-03-27 21:33:30 TP0] Load weight end. type=Gemma3ForConditionalGeneration, dtype=torch.bfloat16, \
avail mem=131.08 GB, mem usage=8.13 GB.
[2025-03-27 21:33:31 TP0] KV Cache is allocated. #tokens: 834615, K size: 54.12 GB, V size: 54.12 GB
[2025-03-27 21:33:31 TP0] Memory pool end. avail mem=14.61 GB
[2025-03-27 21:33:31 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB
Capturing batches (avail_mem=12.55 GB):   0%|   | 0/23\rCapturing batches (avail_mem=9.72 GB): 100%|##| 23/23
[2025-03-27 21:33:42 TP0] Capture cuda graph end. Time elapsed: 11.35 s. \
mem usage=1.04 GB. avail mem=11.22 GB.
[2025-03-27 21:33:43 TP0] max_total_num_tokens=834615, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=2048, context_len=128000, available_gpu_mem=11.22 GB
"""

RELEASE_0_5_17 = """\
[2026-08-02 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-30B-A3B', tp_size=1, \
mem_fraction_static=0.85)
[2026-08-02 10:00:01] Init torch distributed ends. elapsed=0.52 s, mem usage=0.69 GB
[2026-08-02 10:00:02] Load weight begin. avail mem=139.11 GB
[2026-08-02 10:00:12] Load weight end. elapsed=10.10 s, type=Qwen3MoeForCausalLM, avail mem=82.19 GB, \
mem usage=56.91 GB.
[2026-08-02 10:00:12] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 669939, K size: 30.67 GB, \
V size: 30.67 GB
[2026-08-02 10:00:12] Memory pool end. avail mem=20.09 GB
[2026-08-02 10:00:12] Running FlashInfer autotune with cache: /root/.cache/sglang/flashinfer/x.json
[2026-08-02 10:00:20] FlashInfer autotune completed.
[2026-08-02 10:00:20] Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], \
avail mem=19.50 GB
[2026-08-02 10:00:35] Capture target prefill CUDA graph end. elapsed=15.08 s, mem usage=1.36 GB, \
avail mem=18.10 GB.
[2026-08-02 10:00:36] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2], \
avail mem=18.10 GB
[2026-08-02 10:00:41] Capture target decode CUDA graph end. elapsed=5.81 s, mem usage=0.33 GB, \
avail mem=17.71 GB.
"""


def _read(tmp_path: Path, content: str | bytes) -> ServerLog:
    path = tmp_path / "server.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_server_log(path)


def test_a_release_that_names_its_captures(tmp_path: Path) -> None:
    log = _read(tmp_path, RELEASE_0_5_17)
    phases = [step.phase for step in log.lead.steps]
    assert phases[2:] == ["kv pool", "autotune", "prefill graphs", "decode graphs"]
    assert log.lead.steps[4].used_bytes == round(1.36 * GIB)
    assert log.server_args is not None and "Qwen/Qwen3-30B-A3B" in log.server_args


def test_a_draft_has_weights_and_graphs_of_its_own(tmp_path: Path) -> None:
    more = """\
[2026-08-02 10:01:00] Load weight begin. avail mem=17.00 GB
[2026-08-02 10:01:05] Load weight end. type=Draft, avail mem=15.00 GB, mem usage=2.00 GB.
[2026-08-02 10:01:06] KV Cache is allocated. dtype: x, #tokens: 669939, K size: 0.50 GB, V size: 0.50 GB
[2026-08-02 10:01:06] Memory pool end. avail mem=13.00 GB
[2026-08-02 10:01:06] Capture draft decode CUDA graph end. elapsed=1.00 s, \
mem usage=0.10 GB, avail mem=14.90 GB.
"""
    steps = _read(tmp_path, RELEASE_0_5_17 + more).lead.steps
    assert [step.phase for step in steps[-3:]] == ["draft weights", "kv pool", "draft graphs"]
    assert (steps[2].used_bytes, steps[-2].used_bytes) == (round(61.34 * GIB), GIB)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x7fELF" + bytes(range(256)) * 40, VLLM], ids=len)
def test_what_is_no_start_is_said(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=r"server\.log shows no start"):
        _read(tmp_path, content)


def test_of_a_log_that_is_too_large_the_last_part_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "server.log").touch()
    os.truncate(tmp_path / "server.log", (1 << 30) + 1)
    assert "fix: give its last part" in run_here("mem-report", "--log", tmp_path / "server.log").err


@pytest.mark.parametrize(
    "line",
    [
        "CUDA out of memory. Tried to allocate 1.2.3 GiB. GPU 0",
        "CUDA out of memory. Tried to allocate . GiB",
        "[2025-03-27 21:33:20 TP0] Load weight begin. avail mem=99999999999999.9 GB",
        f"[2025-03-27 21:33:20 TP0] KV Cache is allocated. #tokens: {'9' * 400}, K size: 1 GB, V size: 1 GB",
    ],
)
def test_numbers_that_are_none_are_passed_over(tmp_path: Path, line: str) -> None:
    assert _read(tmp_path, line + "\n" + RELEASE_0_4).lead.kv_tokens == 834615


@given(st.binary(max_size=2000).map(lambda junk: b"x" + junk))  # neither gzip nor UTF-16
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    tmp_path = tmp_path_factory.mktemp("log")
    log = _read(tmp_path, junk + b"\n" + RELEASE_0_4.encode())
    assert log.lead.kv_tokens == 834615


PODS = """\
[pod/chat-{pod}/sglang] 2026-11-20T10:00:00.1Z [2026-11-20 10:00:00] server_args={{'model_path': 'm', \
'port': {pod}, 'random_seed': {pod}7, 'disaggregation_mode': '{mode}'}}
[pod/chat-{pod}/sglang] 2026-11-20T10:00:01.1Z \x1b[32m[2026-11-20 10:00:01 TP0]\x1b[0m \
Load weight begin. avail mem={free}.00 GB
[pod/chat-{pod}/sglang] 2026-11-20T10:00:02.1Z [2026-11-20 10:00:02 TP0] Load weight end. \
avail mem=50.00 GB, mem usage=28.00 GB.
"""


def test_the_pods_of_a_router_are_told_apart(tmp_path: Path) -> None:
    told = ((0, "null", 78), (1, "null", 70), (2, "decode", 60))
    pods = [PODS.format(pod=pod, mode=mode, free=free).splitlines() for pod, mode, free in told]
    log = _read(tmp_path, "\n".join(line for lines in zip(*pods, strict=True) for line in lines))
    assert [rank.name for rank in log.ranks] == [f"TP0 of chat-{pod}/sglang" for pod in range(3)]
    assert [rank.baseline_bytes for rank in log.ranks] == [free * GIB for _, _, free in told]
    turned = [" ".join((*line.split(" ", 2)[1::-1], *line.split(" ", 2)[2:])) for pod in pods for line in pod]
    assert turned[0].startswith("2026-11-20T10:00:00.1Z [pod/chat-0/sglang] [2026")
    assert [rank.name for rank in _read(tmp_path, "\n".join(turned)).ranks] == [r.name for r in log.ranks]
    assert log.lead.source == "chat-0/sglang" and [rank.source for rank in log.peers] == ["chat-0/sglang"]


def test_a_pool_that_is_sized_after_the_captures_is_read_where_it_comes(tmp_path: Path) -> None:
    at = "[2026-11-20 10:00:00 TP0]"
    log = _read(
        tmp_path,
        f"{at} Load weight begin. avail mem=77.00 GB\n"
        f"{at} KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 273000, KV size: 60.00 GB\n"
        f"{at} Memory pool end. avail mem=60.00 GB\n"
        f"{at} Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 200000, "
        "KV size: 50.00 GB, avail mem=6.00 GB\n",
    )
    assert log.lead.pool_comes_last and (log.lead.kv_tokens, log.lead.kv_bytes) == (200_000, 50 * GIB)
    assert [(step.phase, step.free_bytes) for step in log.lead.steps] == [("kv pool", 6 * GIB)]


def test_a_line_without_a_rank_breaks_no_rank_s_silence(tmp_path: Path) -> None:
    line = "2026-11-20T10:0{0}:00Z [2026-11-20 10:0{0}:00 TP{0}] Init torch distributed begin.\n"
    (tmp_path / "log").write_text(line.format(0) + line.format(1) + "2026-11-20T10:09:00Z nobody's line\n")
    (start,) = read_starts(tmp_path / "log").starts
    assert [word.text[:5] for word in start.last_words.values()] == ["Init ", "Init ", "nobod"]
