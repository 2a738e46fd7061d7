"""A server's log, for `mem-report --from-log`: the start it tells of, and the flags it names."""

from __future__ import annotations

import dataclasses
from io import StringIO
from pathlib import Path
from random import Random

from sgl_tune.cli.out import Output
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.memory.from_log import with_log
from sgl_tune.memory.server_args import flags_of_log
from sgl_tune.server_log.reader import read_server_log
from sgl_tune.server_log.show import show_outcome
from sgl_tune.server_log.verdict import outcome_of
from tests.fuzz.mutate import mutated, of_bytes, of_lines, of_numbers
from tests.fuzz.parser import Parser
from tests.sgl_tune.memory.reports import make_report
from tests.sgl_tune.running import ROOT

PUBLIC_LOGS = ROOT / "tests" / "sgl_tune" / "data" / "public_logs"
_AT = b"[2026-11-20 10:00:00"
_SEEDS = (
    _AT + b"] server_args=ServerArgs(model_path='Qwen/Qwen3-30B-A3B', tp_size=4, dp_size=2, dtype='auto', "
    b"enable_dp_attention=True, chunked_prefill_size=4096, mem_fraction_static=0.85, context_length=None)\n"
    + _AT
    + b" DP0 TP0] Init torch distributed begin.\n"
    + _AT
    + b" DP0 TP0] Init torch distributed ends. elapsed=1.23 s, mem usage=0.50 GB\n"
    + _AT
    + b" DP0 TP0] Load weight begin. avail mem=138.20 GB\n"
    + _AT
    + b" DP0 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=80.10 GB, mem usage=58.10 GB.\n"
    + _AT
    + b" DP0 TP0] KV Cache is allocated. #tokens: 669939, K size: 30.67 GB, V size: 30.67 GB\n"
    + _AT
    + b" DP0 TP0] Memory pool end. avail mem=18.10 GB\n"
    + _AT
    + b" DP0 TP0] Capture target decode CUDA graph begin. This can take minutes. avail mem=18.00 GB\n"
    + _AT
    + b" DP0 TP0] Capture target decode CUDA graph end. Time elapsed: 5.81 s. mem usage=0.33 GB. "
    b"avail mem=17.70 GB.\n"
    + _AT
    + b" DP0 TP0] max_total_num_tokens=669939, chunked_prefill_size=4096, max_running_requests=4096, "
    b"context_len=40960, available_gpu_mem=17.60 GB\n",
    _AT
    + b"] server_args={'model_path': 'GLM-5.1', 'tp_size': 8, 'mem_fraction_static': 0.9}\n"
    + _AT
    + b" TP1] Load weight begin. avail mem=78.20 GB\n"
    b"Traceback (most recent call last):\n"
    b'  File "/usr/lib/python3/sglang/srt/model_executor/model_runner.py", line 300, in load_model\n'
    b'  File "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", line 100, in __init__\n'
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 1 has a total capacity of "
    b"79.11 GiB of which 57.00 MiB is free. Of the allocated memory 77.20 GiB is allocated by PyTorch, and "
    b"12.00 MiB is reserved by PyTorch but unallocated.\n",
    b"RuntimeError: CUDA error: out of memory\n",
    *(path.read_bytes() for path in sorted(PUBLIC_LOGS.glob("*.log"))),
    b"".join(
        b"[pod/chat-%d/sglang] 2026-11-20T10:00:01.5Z \x1b[32m[2026-11-20 10:00:01 TP%d]\x1b[0m %s\n" % of
        for of in (
            (0, 0, b"Load weight begin. avail mem=77.20 GB"),
            (1, 1, b"Load weight begin. avail mem=47.20 GB"),
            (1, 1, b"Capturing prefill shape (num_tokens=640 avail_mem=0.01 GB): 43%"),
        )
    ),
)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_numbers, of_numbers, of_bytes, of_lines)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "server.log").write_bytes(raw)
    log = read_server_log(folder / "server.log")
    found = outcome_of(log)
    show_outcome(Output(stdout=StringIO()), found)
    found.to_json()
    with_log(make_report(), log)
    flags = flags_of_log(log.server_args or "", ServerFlags(gpu="h200", flashinfer_version="0.7.2"))
    if flags.model_path:
        select_deployments(dataclasses.replace(flags, cache_dir=str(folder)))


PARSER = Parser(_make, _read, ours=(UsageError,))
