"""Logs in the forms in which people post them: each collector's prefix, each kind of death, what others say
after it. The first line names what happened, and the first remedy is what helps."""

import gzip
import json
from pathlib import Path

import pytest

from runtime.toml import tomllib
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.server_log.dead import READY, SIGQUIT, arguments, entry, loaded, oom, pooled, traceback

COLLECTORS = {
    "kubectl": "[pod/r1-0/sglang] 2025-04-11T08:06:00.1Z ",
    "containerd": "2026-01-12T03:02:01.000000001+08:00 stdout F ",
    "journalctl": "Nov 20 10:00:00 gpu-7 sglang[4120]: ",
    "CI": "[2025-11-06T02:10:00.703Z] ",
    "compose": "sglang-1  | ",
    "Ray": "\x1b[36m(SGLangEngine pid=952, ip=10.150.236.219)\x1b[0m ",
    "Docker Desktop": "2025-04-15 14:30:13 ",
    "a program": "2025-04-15 14:30:13,531 - __main__ - INFO - ",
    "none": "",
}
LAST_LINES = Path(__file__).with_name("last_lines.toml")
RANKS = loaded("TP0") + loaded("TP1") + pooled("TP0") + pooled("TP1")
CAPTURE = "".join(
    entry(6, "Capture cuda graph begin. This can take up to several minutes. avail mem=6.40 GB", rank)
    for rank in ("TP0", "TP1")
)
GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:33521"
CAPTURING = (
    arguments(tp_size=2, cuda_graph_max_bs=160, disable_cuda_graph=False)
    + RANKS
    + CAPTURE
    + traceback(oom("448.00 MiB", "396.69 MiB"), "TP1", ("model_executor/cuda_graph_runner.py", "capture"))
    + f"Exception: Capture cuda graph failed: {oom('448.00 MiB', '396.69 MiB')}\nPossible solutions:\n"
    + "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    + traceback(f"Exception: Capture cuda graph failed: {GLOO}", "TP0", second=21)
    + SIGQUIT
)
ILLEGAL = "CUDA error: an illegal memory access was encountered"
SERVING = RANKS + READY + entry(31, "Decode batch, #running-req: 3", "TP0")
KILLED = "Out of memory: Killed process 4188 (sglang::schedul) total-vm:181211232kB, anon-rss:99121212kB\n"
CONFIGS = "/sglang/srt/layers/moe/fused_moe_triton/configs/triton"
NAME = "E=128,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]"
LOGS = {
    "capturing": (
        CAPTURING, "OUT OF MEMORY in decode graphs on TP1: 51 MiB short", "--mem-fraction-static 0.82 ("
    ),
    "a batch": (
        arguments(chunked_prefill_size=16384) + SERVING
        + traceback(oom("14.25 GiB", "8.94 GiB"), "TP1") + SIGQUIT,
        "OUT OF MEMORY while serving on TP1: 5.31 GiB short",
        "--chunked-prefill-size 8192 (",
    ),
    "the fraction": (
        arguments(tp_size=2) + loaded("TP0", left="12.05") + loaded("TP1", left="12.05")
        + traceback("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "TP1"),
        "REFUSED by SGLang in kv pool on TP1: even an empty KV cache would need 1.08 GiB more",
        "--mem-fraction-static 0.86 (",
    ),
    "a kernel": (
        SERVING + traceback(f"RuntimeError: {ILLEGAL}", "TP1")
        + f"  what():  [PG ID 2 Rank 1] Process group watchdog thread terminated with exception: {ILLEGAL}\n"
        + "Fatal Python error: Aborted\n" + SIGQUIT,
        "DIED while serving on TP1: a kernel failed on the GPU",
        "CUDA_LAUNCH_BLOCKING=1 (",
    ),
    "the host": (
        RANKS + KILLED + "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9).\n",
        "DIED in attention backend on TP1: a process was killed (SIGKILL)",
        "give the container more host memory",
    ),
    "the checkpoint": (
        loaded("TP0").rpartition("[")[0]
        + entry(4, "Ignore import error when loading sglang.srt.models.glm4v_moe: No module named 'x'", "TP0")
        + traceback("KeyError: 'lm_head.weight'", "TP0", ("models/deepseek_vl2.py", "load_weights")),
        "DIED in weights on TP0: the checkpoint does not match SGLang's code for this model",
        "check that this release supports the model",
    ),
    "a watchdog": (
        SERVING + entry(32, "Watchdog timeout (self.watchdog_timeout=300)", "TP1")
        + entry(32, "Pyspy dump for PID 309:", "TP1") + 'Thread 309 (active): "MainThread"\n' + SIGQUIT,
        "DIED while serving on TP1: a forward batch took longer than the watchdog allows",
        "--watchdog-timeout 1200 (",
    ),
    "the network": (
        loaded("TP0").partition("Init torch distributed ends")[0].rpartition("[")[0]
        + traceback("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)", "TP0"),
        "DIED in communicator on TP0: communication between the ranks failed",
        "NCCL_DEBUG=WARN (",
    ),
    "the weights": (
        arguments(tp_size=2) + loaded().rpartition("[")[0] + traceback(oom("384.00 MiB", "313.00 MiB")),
        "OUT OF MEMORY in weights: at least 71 MiB short", "--tp 4 (",
    ),
    "/dev/shm": (
        loaded() + "Fatal Python error: Bus error\n", "DIED in kv pool: a disk or /dev/shm", "free space"
    ),
    "flags": (
        'Traceback (most recent call last):\n  File "/sglang/srt/server_args.py", line 9, in check\n'
        "    assert self.tp_size % self.nnodes == 0\n           ^^^\nAssertionError\n",
        "REFUSED by SGLang before the communicator: SGLang refuses these flags for this model",
        "change the flag that the message names",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_the_first_line_names_the_death_whoever_collected_the_log(name: str, tmp_path: Path) -> None:
    log, first, remedy = LOGS[name]
    path = tmp_path / "server.log"
    for collector, prefix in COLLECTORS.items():
        path.write_text("".join(prefix + line for line in log.splitlines(keepends=True)))
        ran = run_here("mem-report", "--log", path)
        head, *rest = ran.out.splitlines()
        for source in ("r1-0/sglang", "gpu-7", "sglang-1", "SGLangEngine pid=952, ip=10.150.236.219"):
            head = head.replace(f" of {source}", "").replace(f" on {source}", "")
        assert (ran.code, ran.err) == (1, "") and head.startswith(first), collector
        assert any(line.startswith(f"  1. {remedy}") for line in rest), (collector, rest)
        assert "Traceback" not in ran.out
        if name != "flags":  # it has no times
            assert run_here("start-report", path).out.splitlines()[0] == ran.out.splitlines()[0]


def test_a_compressed_log_is_the_same_log(tmp_path: Path) -> None:
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(CAPTURING.encode()))
    ran = run_here("mem-report", "--log", tmp_path / "server.log.gz", "-q")
    assert ran.out.startswith("OUT OF MEMORY in")


def test_another_process_that_the_kernel_kills_is_no_death_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(SERVING + KILLED.replace("sglang::schedul", "java"))
    assert run_here("mem-report", "--log", tmp_path / "server.log").code == 0


@pytest.mark.parametrize("command", [("mem-report", "--log"), ("start-report",)])
def test_a_serving_servers_missing_files_are_found(command: tuple[str, ...], tmp_path: Path) -> None:
    """Missing files of Triton configurations and failed transfers between prefill and decode are shown."""
    looked = (
        f"Config file not found at {CONFIGS}_3_5_1/{NAME}.json. Fallback to triton version 3.2.0 and use MoE "
        f"kernel config from {CONFIGS}_3_2_0/{NAME}.json. Performance might be sub-optimal!",
        "Using MoE kernel config with down_moe=False. Performance might be sub-optimal! Config file not "
        f"found at {CONFIGS}_3_5_1/{NAME}_down.json, you can create them with https://github.com",
        "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
        f"{CONFIGS}_3_5_1/E=8.json, you can create them with https://github.com",
        "Decode transfer failed for request rank=1 decode_req.req.rid='3ce84' "
        "with exception KVTransferError(bootstrap_room=165): Failed to get kvcache from prefill instance",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start",
    )
    lines = "".join(entry(7, text, rank) for text in looked for rank in ("TP0", "TP1"))
    (tmp_path / "server.log").write_text(RANKS + lines + READY)
    shown = run_here(*command, tmp_path / "server.log")
    older = f"no tuned file {NAME}.json: SGLang uses the file for Triton 3.2.0"
    assert shown.code == 0 and older in shown.out
    assert "2 transfers of KV cache failed between prefill and decode: KVTransferError: Failed" in shown.out
    found = json.loads(run_here(*command, tmp_path / "server.log", "--format", "json").out)
    names = [one["file"] and one["file"].rpartition("/")[2] for one in found["findings"]]
    assert names == [f"{NAME}.json", f"{NAME}_down.json", "E=8.json", None, None]
    assert {one["count"] for one in found["findings"]} == {2}
    assert schema_faults("start-report" if len(command) == 1 else "mem-report-log", found | {"against": None}
                         if len(command) == 1 else found) == []  # fmt: skip


@pytest.mark.parametrize(
    "end", tomllib.loads(LAST_LINES.read_text())["end"], ids=lambda end: end["says"][-40:]
)
def test_the_last_lines_of_a_log_show_its_death(end: dict[str, str], tmp_path: Path) -> None:
    begun = loaded("TP0") + loaded("TP1") if "in weights" in end["says"] else RANKS
    begun = arguments(tp_size=2) + ("" if "before the communicator" in end["says"] else begun)
    (tmp_path / "server.log").write_text(begun + end["log"])
    ran = run_here("mem-report", "--log", tmp_path / "server.log")
    assert ran.code == 1 and ran.out.startswith(end["says"]) and end["helps"] in ran.out, ran.out
