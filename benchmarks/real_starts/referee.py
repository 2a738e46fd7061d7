"""One start of a stock SGLang with random weights, a process a GPU: what each step of it takes, rank by rank.

    python benchmarks/real_starts/referee.py OUT_FOLDER RANKS -- python -m sglang.launch_server ...

It needs SGLang 0.5.17 and its GPUs, and nothing of this project. The order of the steps is the server's own,
`Scheduler.init_model_worker`; around them stand readings of torch's counters and of the driver, as in
`sgl-tune mem-report --measure`. OUT_FOLDER gets `rank0.jsonl` and `rank0.log`, and so on.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import multiprocessing
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RANDOM_WEIGHTS = [
    *("--load-format", "dummy", "--skip-tokenizer-init"),
    *("--sampling-backend", "pytorch", "--grammar-backend", "none"),
]
SECONDS = float(os.environ.get("REFEREE_SECONDS", "170"))
MIB = 1 << 20


class Recorder:
    """Writes a line a phase when it ends; a peak counts for the phases around it too."""

    def __init__(self, out: Path) -> None:
        self._file = out.open("w", buffering=1)
        self._open: list[dict[str, int]] = []
        self._failed = False

    def line(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def readings(self) -> dict[str, int]:
        import torch

        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        read = {
            "allocated": torch.cuda.memory_allocated(),
            "reserved": reserved,
            "peak": torch.cuda.max_memory_allocated(),
            "reserved_peak": torch.cuda.max_memory_reserved(),
            "free": free,
            "total": total,
            "outside_torch": total - free - reserved,
        }
        torch.cuda.reset_peak_memory_stats()
        for outer in self._open:
            for name in ("peak", "reserved_peak"):
                outer[name] = max(outer[name], read[name])
        return read

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.readings()
        began, peaks = time.monotonic(), {"peak": 0, "reserved_peak": 0}
        self._open.append(peaks)
        try:
            yield
        except BaseException as error:
            if not self._failed:
                self._failed = True
                text = f"{type(error).__name__}: {error}"[:3000]
                self.line(failed=name, error=text, **{**self.readings(), **peaks})
            raise
        finally:
            if not self._failed:
                read = self.readings()
                seconds = round(time.monotonic() - began, 3)
                self.line(phase=name, depth=len(self._open) - 1, seconds=seconds, **{**read, **peaks})
            self._open.pop()

    def grown(self, what: str, call: Callable[[], Any]) -> Any:
        """What a call takes outside torch, where that is worth a line."""
        import torch

        if torch.cuda.is_current_stream_capturing():
            return call()
        before = self.readings()["outside_torch"]
        result = call()
        grown = self.readings()["outside_torch"] - before
        if grown >= MIB:
            self.line(grown=what, bytes=grown)
        return result


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """`around(call, *args, **kwargs)` in place of `owner.name(*args, **kwargs)`, where there is one."""
    inner = getattr(owner, name, None)
    if inner is not None:

        @functools.wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            return around(functools.partial(inner, *args, **kwargs), *args)

        setattr(owner, name, outer)


def watch(recorder: Recorder) -> None:
    """SGLang's own steps under the names that `mem-report` gives them."""
    import torch.distributed as dist
    from sglang.srt.distributed import bootstrap, parallel_state
    from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
    from sglang.srt.model_executor import model_runner
    from sglang.srt.model_executor.model_runner_components import cuda_graph_setup
    from sglang.srt.model_executor.runner import base_runner

    def step(name: str, draft: str = "") -> Callable[..., Any]:
        def around(call: Callable[[], Any], *args: Any) -> Any:
            is_draft = getattr(args[0], "is_draft_worker", False) if args else False
            with recorder.phase(draft if is_draft else name):
                return call()

        return around

    runner = model_runner.ModelRunner
    wrap(bootstrap, "init_torch_distributed", step("communicator"))
    wrap(runner, "load_model", step("weights", "draft weights"))
    wrap(runner, "alloc_memory_pool", step("kv pool", "draft kv pool"))
    wrap(runner, "init_attention_backends", step("attention backend", "draft attention backend"))
    wrap(cuda_graph_setup, "EagerRunner", step("eager", "draft eager"))
    wrap(base_runner.BaseRunner, "_flashinfer_autotune", step("autotune"))
    for phase in ("prefill", "decode"):

        def capture(call: Callable[[], Any], *args: Any, phase: str = phase) -> Any:
            with recorder.phase(f"{phase} graphs"):
                return call()

        wrap(cuda_graph_setup, f"capture_{phase}_graph", capture)

    def growth(what: str) -> Callable[..., Any]:
        return lambda call, *args: recorder.grown(what, call)

    wrap(PyNcclCommunicator, "__init__", growth("pynccl communicator"))
    wrap(parallel_state, "init_distributed_environment", growth("init_distributed_environment"))
    for name in (
        "all_reduce",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
        "all_to_all_single",
        "new_group",
    ):
        wrap(dist, name, growth(f"torch.distributed.{name}"))


def start_rank(rank: int, argv: list[str], out: str) -> None:
    log = os.open(Path(out) / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    recorder = Recorder(Path(out) / f"rank{rank}.jsonl")
    import torch

    server = read_arguments(argv)
    torch.cuda.set_device(rank)
    with recorder.phase("start"):
        scheduler = make_scheduler(server, rank)
        watch(recorder)
        count_profiles(recorder)
        allow_missing("deep_gemm")
        began = time.monotonic()
        scheduler.init_model_worker()
        tell_sizes(recorder, scheduler, time.monotonic() - began)
    os._exit(0)


def read_arguments(argv: list[str]) -> Any:
    from sglang.srt.entrypoints.engine import _set_envs_and_config
    from sglang.srt.server_args import prepare_server_args

    server = prepare_server_args([*argv, *RANDOM_WEIGHTS])
    _set_envs_and_config(server)
    return server


def make_scheduler(server: Any, gpu: int) -> Any:
    """What `Scheduler.__init__` sets before it makes the workers, without its sockets and caches."""
    from sglang.srt.distributed.parallel_state_wrapper import ParallelState
    from sglang.srt.layers.dp_attention import compute_dp_attention_world_info
    from sglang.srt.managers import scheduler as module
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    tp_rank, pp_rank = gpu % server.tp_size, gpu // server.tp_size
    moe_ep_rank = tp_rank // (server.tp_size // server.ep_size)
    attn = compute_dp_attention_world_info(
        server.enable_dp_attention, tp_rank, server.tp_size, server.dp_size, server.attn_cp_size
    )
    dp_rank = attn[2] if server.enable_dp_attention else None
    module.configure_scheduler_process(server, gpu, tp_rank, 0, 0, moe_ep_rank, pp_rank, dp_rank)
    module.publish(server, role="scheduler")
    scheduler = module.Scheduler.__new__(module.Scheduler)
    scheduler.server_args, scheduler.nccl_port = server, server.nccl_port
    scheduler.enable_dp_attention, scheduler.page_size = server.enable_dp_attention, server.page_size
    scheduler.spec_algorithm = SpeculativeAlgorithm.from_string(server.speculative_algorithm)
    scheduler.ps = ParallelState(
        tp_rank=tp_rank,
        tp_size=server.tp_size,
        pp_rank=pp_rank,
        pp_size=server.pp_size,
        dp_rank=dp_rank,
        dp_size=server.dp_size,
        attn_tp_rank=attn[0],
        attn_tp_size=attn[1],
        attn_cp_rank=0,
        attn_cp_size=server.attn_cp_size,
        attn_dp_rank=attn[2],
        attn_dp_size=attn[3],
        moe_ep_rank=moe_ep_rank,
        moe_ep_size=server.ep_size,
        moe_dp_rank=0,
        moe_dp_size=server.moe_dp_size,
        dcp_size=server.dcp_size,
        gpu_id=gpu,
    )
    scheduler.init_model_config()
    scheduler.init_moe_gemm_config()
    scheduler.init_mamba_backend()
    return scheduler


def allow_missing(name: str) -> None:
    """A draft's start imports the attention of other models, which this one does not run."""
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.ModuleType(name)


def count_profiles(recorder: Recorder) -> None:
    from flashinfer.autotuner import AutoTuner

    profiled = [0]

    def around(call: Callable[[], Any], *args: Any) -> Any:
        profiled[0] += 1
        return call()

    wrap(AutoTuner, "_profile_single_kernel", around)
    recorder.profiled = profiled  # type: ignore[attr-defined]


def tell_sizes(recorder: Recorder, scheduler: Any, seconds: float) -> None:
    runner = scheduler.tp_worker.model_runner
    recorder.line(
        ready=True,
        seconds=round(seconds, 2),
        profiled=recorder.profiled[0],  # type: ignore[attr-defined]
        kv_tokens=runner.max_total_num_tokens,
        max_running_requests=runner.max_running_requests,
        mem_fraction_static=scheduler.server_args.mem_fraction_static,
        chunked_prefill_size=scheduler.server_args.chunked_prefill_size,
        context_length=runner.model_config.context_len,
    )


def main() -> None:
    out, ranks = Path(sys.argv[1]), range(int(sys.argv[2]))
    argv = sys.argv[sys.argv.index("sglang.launch_server") + 1 :]
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=start_rank, args=(rank, argv, str(out))) for rank in ranks]
    for process in processes:
        process.start()
    until = time.monotonic() + SECONDS
    while any(process.is_alive() for process in processes) and time.monotonic() < until:
        if any(process.exitcode not in (None, 0) for process in processes):
            until = min(until, time.monotonic() + 5)  # the others may tell how they end
        time.sleep(0.2)
    for process in processes:
        process.kill()
        process.join()
    print(out.name, "exit codes", [process.exitcode for process in processes], flush=True)


if __name__ == "__main__":
    main()
