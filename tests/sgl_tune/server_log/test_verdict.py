"""`mem-report --log` of a dead server: what killed it, where, how much was short, what would have helped."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.units import GIB, MIB
from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.server_log import dead
from tests.sgl_tune.server_log.dead import READY, SIGQUIT, arguments, entry, loaded, oom, pooled, traceback

CAPTURING = entry(6, "Capture target decode CUDA graph begin. backend=full, bs=[1, 2], avail mem=11.54 GB")
EXIT = "RuntimeError: Rank 1 scheduler died during initialization (exit code: {}). If exit code is -9 "
WHY = "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.\n"
CRASHED = "Subprocess scheduler_1 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."


def _told(folder: Path, log: str, *more: object) -> Ran:
    (folder / "server.log").write_text(log)
    return run_here("mem-report", "--log", folder / "server.log", *more)


def _json(folder: Path, log: str) -> Any:
    ran = _told(folder, log, "--format", "json")
    found = json.loads(ran.out)
    assert schema_faults("mem-report-log", found) == []
    assert ran.code == (0 if found["verdict"] == "ready" else 1)
    return found


def test_an_error_without_a_size_during_capture_is_out_of_memory(tmp_path: Path) -> None:
    """sgl-project/sglang#39713: `AcceleratorError` inside `capture_end()`, which names no size."""
    found = _json(tmp_path, dead.PREFILL_GRAPHS)
    assert (found["verdict"], found["failed_in"], found["source"]) == ("oom", "prefill graphs", "log")
    assert found["oom"]["tried_bytes"] is None and found["oom"]["by_driver"]
    assert found["oom"]["where"] == "breakable_cuda_graph.py:7 in capture_end"
    assert "num_tokens=640" in found["cause"]["shown_by"]
    flags = [remedy["flags"] for remedy in found["oom"]["remedies"]]
    assert flags == ["--cuda-graph-max-bs-prefill 4096", "--disable-prefill-cuda-graph", ""]
    text = _told(tmp_path, dead.PREFILL_GRAPHS).out
    assert text.startswith("OUT OF MEMORY in prefill graphs: the log does not show how much")


def test_the_cheapest_change_comes_first_with_its_price(tmp_path: Path) -> None:
    log = arguments(cuda_graph_max_bs=256, disable_cuda_graph=False) + loaded() + pooled() + CAPTURING
    found = _json(tmp_path, log + traceback(oom()) + SIGQUIT)
    told = found["oom"]
    assert (told["tried_bytes"], told["missing_bytes"]) == (512 * MIB, round((512 - 81.06) * MIB))
    assert told["allocated_bytes"] == round(77.02 * GIB)
    first, *others = told["remedies"]
    # 431 MiB were short and 256 MiB are spare: less than a hundredth of 77.24 GiB.
    assert first["flags"] == "--mem-fraction-static 0.82"
    assert first["cost"] == "frees 791 MiB where 431 MiB were short, 1.3 % less KV cache"
    assert [remedy["flags"] for remedy in others] == ["--cuda-graph-max-bs 128", "--disable-cuda-graph"]


def test_the_rank_that_died_first_is_named_though_others_fail_after_it(tmp_path: Path) -> None:
    nccl = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:77, remote process exited"
    log = "".join(loaded(f"TP{rank}") + pooled(f"TP{rank}") for rank in range(4))
    log += traceback(nccl, "TP0", second=21)
    log += traceback(oom(), "TP2", ("layers/moe.py", "forward"), ("torch/_tensor.py", "reshape"))
    found = _json(tmp_path, log + traceback(nccl, "TP3", second=22) + SIGQUIT)
    shown = found["verdict"], found["rank_name"], found["oom"]["where"]
    assert shown == ("oom", "TP2", "moe.py:7 in forward")


def test_the_rank_of_a_killed_process_is_only_named_where_the_log_shows_it(tmp_path: Path) -> None:
    ranks = loaded("TP0") + loaded("TP1")
    shell = "/bin/bash: line 1:    17 Killed                  python3 -m x\n"
    for text, rank in ((entry(9, CRASHED), "TP1"), (EXIT.format(-9) + WHY, "TP1"), (shell, None)):
        assert _json(tmp_path, ranks + text)["rank_name"] == rank


SHORTER = "AssertionError: 79.59 not less than or equal to 45.9\n"


def test_a_server_that_goes_on_did_not_die_of_it(tmp_path: Path) -> None:
    """The autotuner and SGLang's runners catch failing allocations, and a single request may fail."""
    tuned = entry(7, "Running FlashInfer autotune with cache: /c") + oom() + "\n"
    tuned += entry(9, "FlashInfer autotune completed")
    failed = "Traceback (most recent call last):\nValueError: too long\nINFO:     127.0.0.1:1 - 400\n"
    found = _json(tmp_path, loaded() + pooled() + tuned + READY + failed)
    assert (found["verdict"], found["cause"]) == ("ready", None)
    ready = READY.replace("The server", "INFO:     The server")  # as a tokenizer's worker prints it
    test = f'Traceback\n  File "/lib/unittest/case.py", line 7, in fail\n{SHORTER}'
    for last in (failed.partition("INFO")[0], test):
        assert _json(tmp_path, loaded() + pooled() + ready + last)["verdict"] == "ready"
    assert _json(tmp_path, loaded() + test)["verdict"] == "unfinished"


def test_a_log_without_a_death_says_so(tmp_path: Path) -> None:
    ran, says = _told(tmp_path, loaded() + pooled() + CAPTURING), "no death and no ready server"
    assert ran.code == 1 and ran.out.startswith(f"UNFINISHED: the log shows {says}; it ends in decode graphs")
    ran = _told(tmp_path, loaded() + pooled() + READY)
    assert ran.code == 0 and ran.out.startswith("READY")


def test_the_last_start_of_a_log_is_judged(tmp_path: Path) -> None:
    died = arguments() + loaded() + traceback(oom()) + SIGQUIT
    found = _json(tmp_path, died + arguments() + loaded() + pooled() + READY)
    assert (found["verdict"], found["starts"]) == ("ready", 2) and "holds 2 starts" in found["notes"][-1]
    assert _json(tmp_path, died + died + arguments() + loaded())["notes"][-1].endswith(
        "the last one that ended"
    )
    assert _json(tmp_path, arguments(node_rank=0) + arguments(node_rank=1) + loaded())["starts"] == 1


def test_the_verdict_comes_first_beside_a_prediction(tmp_path: Path) -> None:
    """A prediction that fits does not save a dead server, and one that fails does not hide the death."""
    log = arguments(model_path="Qwen3-30B-A3B") + loaded() + pooled() + CAPTURING + traceback(oom())
    ran = _told(tmp_path, log, "--gpu", "h200")
    assert ran.code == 1 and ran.out.startswith("OUT OF MEMORY in decode graphs")
    assert "Predicted and logged" in ran.out
    ran = _told(tmp_path, dead.PREFILL_GRAPHS, "--gpu", "h100", "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"], found["predicted"]) == (1, "oom", None)
    assert "no model at" in found["not_predicted"] and schema_faults("mem-report-log", found) == []


def test_the_least_is_the_least_of_all_lines_and_of_the_death(tmp_path: Path) -> None:
    begin = "Capture cuda graph begin. avail mem=4.61 GB"
    bar = "Capturing batches (bs=512 avail_mem=4.55 GB):   0%|          | 0/10 [00:00<?, ?it/s]\n"
    log = loaded("TP0") + pooled("TP0") + loaded("TP1") + entry(6, begin, "TP1")
    log += entry(6, begin, "TP0") + bar + traceback(oom(free="1.21 GiB"), "TP1") + SIGQUIT
    found = _json(tmp_path, log)
    assert [rank["least_free_bytes"] for rank in found["ranks"]] == [round(4.55 * GIB), round(1.21 * GIB)]
    assert "the log has no 'Memory pool end' line of TP1: what the pool left is unknown" in found["notes"]


def test_advice_fits_the_phase_and_fragmented_memory_is_named(tmp_path: Path) -> None:
    died = oom("1.96 GiB", "1.21 GiB").replace("22.75 MiB is reserved", "1.02 GiB is reserved")
    hit = traceback(died, "", ("layers/logits_processor.py", "_get_logits"))
    log = arguments(cuda_graph_max_bs=512, chunked_prefill_size=8192, max_running_requests=None) + loaded()
    found = _json(tmp_path, log + pooled() + CAPTURING + hit)
    first, *flags = (remedy["flags"].split()[0] for remedy in found["remedies"])
    assert first.startswith("PYTORCH_") and flags == ["--mem-fraction-static", "--cuda-graph-max-bs"]
    assert "1.02 GiB are fragmented" in found["cause"]["shown_by"]
    served = _json(tmp_path, log + pooled() + READY + hit + SIGQUIT)
    assert "--chunked-prefill-size 4096" in [remedy["flags"] for remedy in served["remedies"]]


def test_the_pool_of_a_healthy_log_has_its_size_and_the_hint_comes_last(tmp_path: Path) -> None:
    out = _told(tmp_path, loaded("TP0") + pooled("TP0") + loaded("TP1") + pooled("TP1") + READY).out
    (pool,) = (line for line in out.splitlines() if line.startswith("kv pool"))
    assert pool.split() == ["kv", "pool", "-", "59.40", "GiB", "12.14", "GiB"]
    assert "weights 0.5 s 1.34 GiB 75.90 GiB" in " ".join(out.split())
    assert out.splitlines()[-1] == "sgl-tune start-report shows where the seconds went"


def test_a_traceback_is_of_the_rank_that_began_it(tmp_path: Path) -> None:
    """Another rank logs between the lines of a traceback, which have no rank."""
    ranks = [loaded(f"TP{rank}") + pooled(f"TP{rank}") for rank in (0, 1)]
    head, _, rest = traceback(oom(), "TP1", ("model_runner.py", "_dummy_run")).partition("\n")
    found = _json(tmp_path, "".join((arguments(), *ranks, head, "\n", entry(20, "Tuning", "TP0"), rest)))
    assert (found["verdict"], found["rank_name"]) == ("oom", "TP1")


NCCL = """[rank1]:[E1120 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
NET/IB: Got completion from peer 10.0.3.12<41231> with status=12
"""


def test_a_lost_communication_names_the_late_rank_and_nccls_last_error(tmp_path: Path) -> None:
    begun = entry(3, "Load weight begin. avail mem=77.24 GB", "TP2")
    text = _told(tmp_path, arguments() + loaded("TP0") + loaded("TP1") + begun + NCCL).out
    assert text.startswith(
        "DIED in weights: a collective operation of the ranks timed out; TP2 came least far\n"
    )
    assert "  NCCL: NET/IB: Got completion from peer 10.0.3.12<41231> with status=12\n" in text


USAGE = """usage: launch_server.py [-h] --model-path MODEL_PATH
                        [--chunked-prefill-size CHUNKED_PREFILL_SIZE]
launch_server.py: error: unrecognized arguments: --chunk-prefill-size 4096 --bogus
"""


def test_a_flag_that_sglang_refuses_gets_the_nearest_of_its_usage(tmp_path: Path) -> None:
    found = _json(tmp_path, USAGE)
    assert (found["verdict"], found["cause"]["kind"], found["oom"]) == ("failed", "arguments", None)
    assert found["failure"].endswith("--bogus (did you mean --chunked-prefill-size?)")


def test_a_log_without_an_end_says_where_the_end_may_be_and_how_to_look_at_a_hang(tmp_path: Path) -> None:
    found = _json(tmp_path, arguments() + loaded())
    changes = [remedy["change"] for remedy in found["remedies"]]
    assert found["verdict"] == "unfinished" and "kubectl logs --previous" in changes[-1]
    changes = [
        one["change"] for one in _json(tmp_path, entry(1, "Init torch distributed begin."))["remedies"]
    ]
    assert "NCCL_SOCKET_IFNAME" in changes[0] and "py-spy dump" in changes[1]


CAPTURE = "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity of 95.00"
RUNNER = '  File "/s/{}cuda_graph_runner.py", line 269, in __init__\n    raise Exception(\n'
WRAPPED = oom("24.00 MiB", "4.31 MiB").replace("capacity of", "capacity of" + " " * 29)
WRAPPED = WRAPPED.replace("PyTorch,", "P" + " " * 29 + "yTorch,").replace("GPU 0", "GPU 1")
SOMEWHERE = "in a phase that the log does not show"
STAMP = "[2026-11-20 10:00:20 TP{}] "
TWO = entry(1, "{0}", "TP4") + entry(1, "{0}", "TP1")
SHOWN = (
    ("Traceback (most recent call last):\n" + RUNNER.format("") + "Exception: Capture cuda graph failed: "
     + CAPTURE, "OUT OF MEMORY in decode graphs on GPU 7: 448 MiB did not fit", "(--cuda-graph-max-bs"),
    (RUNNER.format("eagle_draft_") + CAPTURE, "OUT OF MEMORY in draft graphs on GPU 7: 448 MiB", ""),
    (f"Exception: Capture cuda graph failed: {CAPTURE}", "OUT OF MEMORY in decode or draft graphs on GPU 7",
     "(--cuda-graph-max-bs"),
    (STAMP.format(1) + "Failed: " + WRAPPED, f"OUT OF MEMORY {SOMEWHERE} on TP1: 20 MiB short",
     "4 MiB free of 79.18 GiB, 77.02 GiB allocated"),
    (oom("24.00 MiB", "4.31 MiB").replace("of which ", "of\nwhi\nch "), f"OUT OF MEMORY {SOMEWHERE} on GPU 0"
     ": 20 MiB short", "tried 24 MiB, 4 MiB free of 79.18 GiB, 77.02 GiB allocated"),
    ("indexer.py, line 998, in _get_topk\n    f(\nInternalError: CUDA out of memory. Tried to allocate "
     "73.65 GiB. GPU 1 ... 50.40 GiB is free.", f"OUT OF MEMORY {SOMEWHERE} on GPU 1: 23.25 GiB short",
     "1. lower --chunked-prefill-size"),
    ("Load weight end. avail mem=12.25 GB, mem usage=125.65 GB.\nLoaded weights leave no GPU memory "
     "for the KV cache under --mem-fraction-static=0.88.", "REFUSED by SGLang in kv pool: even an empty KV "
     "cache would need 4.30 GiB more", "1. --mem-fraction-static 0.93"),
    (loaded() + loaded() + "INFO:     Uvicorn running on http://x\n", "UNFINISHED: the log shows no death "
     "and no line that says ready; it ends in warm-up request", "draft setup"),
    (entry(1, "Rank 3 scheduler is dead.") + "Exit code: -9\n", f"DIED {SOMEWHERE} on rank 3", "SIGKILL"),
    (TWO.format("Init torch distributed begin."), "UNFINISHED: the log shows no death and no ready server; "
     "it ends in communicator", "all 2 ranks end in communicator"),
    ("ValueError: no\n", f"DIED {SOMEWHERE}: an exception", "look for an earlier part"),
    (pooled() + traceback("", "", ("model_runner.py", "init_backend")).rstrip(),
     "DIED in attention backend: an exception, whose last line is not in the log", "at model_runner.py:7"),
)  # fmt: skip


@pytest.mark.parametrize(("log", "first", "more"), SHOWN)
def test_what_a_part_of_a_log_shows(log: str, first: str, more: str, tmp_path: Path) -> None:
    """A message names its phase and its GPU; a terminal or a page breaks it, or cuts it off."""
    out = _told(tmp_path, log).out
    assert out.startswith(first) and more in out, out
