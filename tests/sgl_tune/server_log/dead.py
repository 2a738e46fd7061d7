"""Logs of servers that died, in the lines of SGLang 0.5.12 to 0.5.23, torch, NCCL and Python."""

AT = "[2026-11-20 10:00:{second:02d}{rank}] {text}\n"


def entry(second: int, text: str, rank: str = "") -> str:
    return AT.format(second=second, rank=f" {rank}" if rank else "", text=text)


def arguments(second: int = 0, **more: object) -> str:
    """As 0.5.18 and later print them: a dict."""
    shown = {"model_path": "Qwen/Qwen3-0.6B", "tp_size": 1, "mem_fraction_static": 0.83, **more}
    return entry(second, f"server_args={shown}")


def loaded(rank: str = "", free: str = "77.24", left: str = "75.90") -> str:
    return "".join(
        entry(second, text, rank)
        for second, text in (
            (1, "Init torch distributed begin."),
            (2, "Init torch distributed ends. elapsed=0.61 s, mem usage=0.39 GB"),
            (3, f"Load weight begin. avail mem={free} GB"),
            (4, f"Load weight end. elapsed=0.52 s, type=Qwen3ForCausalLM, avail mem={left} GB, "
                "mem usage=1.34 GB."),
        )
    )  # fmt: skip


def pooled(rank: str = "") -> str:
    return entry(
        5,
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 556202, K size: 29.70 GB, V size: 29.70 GB",
        rank,
    ) + entry(5, "Memory pool end. avail mem=12.14 GB", rank)


READY = entry(30, "The server is fired up and ready to roll!")
SIGQUIT = entry(31, "Received sigquit from a child process. It usually means the child failed.")
HIT = "Scheduler hit an exception: Traceback (most recent call last):"


def traceback(last: str, rank: str = "", *frames: tuple[str, str], second: int = 20) -> str:
    calls = "".join(
        f'  File "/sgl/python/sglang/srt/{file}", line 7, in {name}\n    call()\n' for file, name in frames
    )
    return entry(second, HIT, rank) + calls + last + "\n\n"


def oom(tried: str = "512.00 MiB", free: str = "81.06 MiB") -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity "
        f"of 79.18 GiB of which {free} is free. Including non-PyTorch memory, this process has 79.10 GiB "
        "memory in use. Of the allocated memory 77.02 GiB is allocated by PyTorch, and 22.75 MiB is reserved "
        "by PyTorch but unallocated."
    )


# sgl-project/sglang#39713: bucket 26 of 58, and torch's error of a driver that names no size.
PREFILL_GRAPHS = (
    arguments(
        cuda_graph_max_bs_prefill=8192, disable_prefill_cuda_graph=False, cuda_graph_backend_decode=None
    )
    + loaded()
    + pooled()
    + entry(
        6,
        "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8192], "
        "avail mem=11.54 GB",
    )
    + "\rCapturing prefill shape (num_tokens=8192 avail_mem=11.08 GB):   0%|     | 0/58 [00:00<?, ?it/s]"
    + "\rCapturing prefill shape (num_tokens=640 avail_mem=0.01 GB):  43%|#| 25/58 [00:09<00:06, 5.1it/s]\n"
    + traceback(
        "torch.AcceleratorError: CUDA error: out of memory",
        "",
        ("managers/scheduler.py", "run_scheduler_process"),
        ("model_executor/runner_backend_utils/breakable_cuda_graph/breakable_cuda_graph.py", "capture_end"),
    )
    + "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    + SIGQUIT
)
