"""Logs of starts for the tests, in SGLang's own format."""

from datetime import datetime, timedelta
from pathlib import Path

from sgl_tune.start_report.report import StartReport, parse_ready, read_start

BEGAN = datetime(2026, 8, 2, 10, 0, 0)
READY = "The server is fired up and ready to roll!"


def entry(at: float, text: str, rank: str = "") -> str:
    return f"[{BEGAN + timedelta(seconds=int(at)):%Y-%m-%d %H:%M:%S}{rank and ' ' + rank}] {text}\n"


def flashinfer(at: float, text: str) -> str:
    stamp = f"{BEGAN + timedelta(seconds=at):%Y-%m-%d %H:%M:%S,%f}"[:-3]
    return f"{stamp} - INFO - autotuner.py:1048 - flashinfer.jit: {text}\n"


def head(at: float = 0) -> str:
    return entry(at, "Attention backend not specified. Use fa3 backend by default.") + entry(
        at + 1, "server_args=ServerArgs(model_path='Qwen/Qwen3-30B-A3B', tp_size=1, nnodes=1)"
    )


def loaded(rank: str = "", begin: float = 10, weights: float = 10) -> str:
    """From the communicator to the pool: two seconds, the weights, one second."""
    at = begin + 2
    return (
        entry(begin, "Init torch distributed begin.", rank)
        + entry(at, "Init torch distributed ends. elapsed=2.00 s, mem usage=0.69 GB", rank)
        + entry(at, "Load weight begin. avail mem=139.11 GB", rank)
        + entry(at + weights, "Load weight end. elapsed=10.10 s, avail mem=82.19 GB", rank)
        + entry(at + weights + 1, "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 669939", rank)
        + entry(at + weights + 1, "Memory pool end. avail mem=20.09 GB", rank)
    )


def served(at: float) -> str:
    """The last three seconds: the HTTP server and the warm-up request."""
    return (
        entry(at, "max_total_num_tokens=669939, chunked_prefill_size=8192, context_len=40960")
        + entry(at + 1, "INFO:     Started server process [1]")
        + entry(at + 1, "INFO:     Application startup complete.")
        + entry(at + 3, READY)
    )


def report(
    folder: Path, text: str | bytes, ready: str | None = None, number: int | None = None
) -> StartReport:
    path = folder / "server.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_start(path, parse_ready(ready), number, lambda count: None)


def seconds(found: StartReport) -> dict[str, float]:
    return {phase.name: round(phase.seconds, 3) for phase in found.phases}
