"""The lines by which a start is known, as data: which release says what, and what it tells.

Read in the wheels of SGLang 0.5.12 to 0.5.23 and of the FlashInfer that each of them pins; a test asks the
wheels again. SGLang's server silences FlashInfer's own lines (`configure_logger`), so most logs lack them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

HEAD = 4  # letters by which a line's rows are found
NUMBER = r"(?P<seconds>\d{1,7}(?:\.\d{1,6})?)"


class Edge(str, Enum):
    """What a line does to the time of its process."""

    opens = "opens"  # the phase goes on until the line that closes it
    closes = "closes"
    passes = "passes"  # what follows is known by the next line of this table alone
    took = "took"  # it tells how long what ends with it lasted
    builds = "builds"  # the phase goes on until the process says anything else
    tells = "tells"  # a fact, and no time


@dataclass(frozen=True)
class Mark:
    """`says` is how the line begins. `then` is what the release may do from there to its next line here: the
    first of them that ends with that line, or with none where the log ends.
    """

    says: str
    edge: Edge
    phase: str = ""
    then: tuple[str, ...] = ()
    fact: str = ""
    since: str = "0.5.12"
    until: str = ""
    where: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.says)

    @property
    def literal(self) -> str:
        """The words that it begins with, as its source has them."""
        words = re.split(r"[(?{]|\\[dsS]|\.[*+]", self.says.replace("\\(", "\0"))[0]
        return words.replace("\0", "(").replace("\\", "")


_ENGINE = "srt/entrypoints/engine.py"
_HTTP = "srt/entrypoints/http_server.py"
_RUNNER = "srt/model_executor/model_runner.py"
_BOOTSTRAP = "srt/distributed/bootstrap.py"
_POOLS = "srt/mem_cache/kv_cache_configurator.py"
_MEMORY = "srt/mem_cache/memory_pool.py"
_TUNING = "srt/model_executor/runner/flashinfer_autotune.py"
_GRAPHS = "srt/model_executor/model_runner_components/cuda_graph_setup.py"
_EAGLE = "srt/speculative/eagle_worker_v2.py"
_DEEP_GEMM = "srt/layers/deep_gemm_wrapper/compile_utils.py"
_COMPILATION = "srt/compilation/backend.py"
_KERNELS = "kernels/jit/utils/compile"
_TUNER = "flashinfer: autotuner"
_JIT = "flashinfer: jit/core.py"
_UVICORN = "uvicorn: server.py"
_IN_POOL = ("kv pool", "attention backends")
_AFTER_POOL = ("attention backends", "kv pool", "draft setup")
_AFTER_GRAPHS = ("scheduler", "draft setup")
_REFEREE = "a start without a server: one_batch.load_model"

_DRAFTS = (
    r"(?:single-CG draft extend|(?:UNO tree |Frozen-KV MTP )?draft(?: decode| extend| prefill| verify)?"
    r" (?:CUDA|cuda|CPU|NPU) graph)"
)

MARKS = (
    # ---- the server's own process
    Mark(r"server_args=", Edge.passes, "arguments", ("processes",), where=_ENGINE),
    Mark(r"max_total_num_tokens=", Edge.passes, "scheduler", ("http server",), fact="scheduler",
         where="srt/managers/scheduler.py"),
    Mark(r"Engine startup timings", Edge.tells, since="0.5.17", where=_ENGINE),
    Mark(r"INFO: +(?:Started server process|Waiting for application startup)", Edge.passes, "http server",
         ("http server",), where=_UVICORN),
    Mark(r"INFO: +(?:Application startup complete|Uvicorn running on)", Edge.passes, "http server",
         ("warm-up request",), where=_UVICORN),
    Mark(r"Start of pd disaggregation warmup", Edge.opens, "warm-up request", where=_HTTP),
    Mark(r"End of disaggregation warmup", Edge.closes, "warm-up request", where=_HTTP),
    Mark(r"The server is fired up and ready to roll!", Edge.passes, "ready", fact="ready",
         where=_HTTP),
    Mark(r"LOADED (?P<seconds>\d{1,7}(?:\.\d+)?) PROFILED (?P<count>\d{1,9})", Edge.passes, "scheduler",
         fact="loaded", where=_REFEREE),
    # ---- what went wrong
    Mark(r"Scheduler hit an exception: ", Edge.tells, fact="failure", where="srt/managers/scheduler.py"),
    Mark(r"Initialization failed\. warmup error: ", Edge.tells, fact="failure", where=_HTTP),
    Mark(r"Received sigquit from a child process", Edge.tells, fact="failure", where=_ENGINE),
    # ---- the communicator
    Mark(r"Init torch distributed begin", Edge.opens, "communicator", until="0.5.20", where=_BOOTSTRAP),
    Mark(r"Init torch distributed ends", Edge.closes, "communicator", ("model setup",), until="0.5.20",
         where=_BOOTSTRAP),
    Mark(r"Init parallel begin", Edge.opens, "communicator", since="0.5.21", where=_BOOTSTRAP),
    Mark(r"Init parallel ends", Edge.closes, "communicator", ("model setup",), since="0.5.21",
         where=_BOOTSTRAP),
    Mark(rf"NCCL/RCCL(?:/HCCL)? warmup completed in {NUMBER}s", Edge.took, "communicator", ("model setup",),
         where=_BOOTSTRAP),
    # ---- weights and the pool
    Mark(r"Load weight begin", Edge.opens, "weights", where=_RUNNER),
    Mark(r"Load weight end", Edge.closes, "weights", ("kv pool", "draft setup"), where=_RUNNER),
    Mark(r"KV Cache is allocated", Edge.passes, "kv pool", _IN_POOL, where=_MEMORY),
    Mark(r"Mamba Cache is allocated", Edge.passes, "kv pool", _IN_POOL, where=_MEMORY),
    Mark(r"Memory pool end", Edge.passes, "kv pool", _AFTER_POOL, where=_POOLS),
    Mark(r"Post-capture KV sizing: KV cache allocated", Edge.passes, "kv pool", ("scheduler",),
         since="0.5.17", where="srt/model_executor/model_runner_components/kv_pool_runtime.py"),
    # ---- tactics
    Mark(r"Running FlashInfer autotune with cache: (?P<path>.+)", Edge.opens, "tactics", fact="cache",
         where=_TUNING),
    Mark(r"Running FlashInfer autotune \(cache reuse DISABLED.*?; writing fresh result to: (?P<path>.+)",
         Edge.opens, "tactics", fact="no reuse", since="0.5.13", where=_TUNING),
    Mark(r"FlashInfer autotune completed", Edge.closes, "tactics", _AFTER_POOL, where=_TUNING),
    Mark(r"FlashInfer autotune: per-rank caches disagree", Edge.tells, fact="disagree", since="0.5.19",
         where=_TUNING),
    Mark(r"FlashInfer extend autotune skipped", Edge.tells, fact="extend skipped", since="0.5.18",
         where=_TUNING),
    Mark(r"\[Autotuner\]: Autotuning process starts", Edge.opens, "tactics", where=_TUNER),
    Mark(r"\[Autotuner\]: Autotuning process ends", Edge.closes, "tactics", where=_TUNER),
    Mark(r"\[Autotuner\]: Loaded (?P<count>\d{1,9}) configs from (?P<path>.+)", Edge.tells,
         fact="loaded file", where=_TUNER),
    Mark(r"\[Autotuner\]: Saved (?P<count>\d{1,9}) configs to (?P<path>.+) \((?P<new>\d{1,9}) new,",
         Edge.tells, fact="saved file", where=_TUNER),
    Mark(r"\[Autotuner\]: Cache file (?P<path>.+?) was created in a different environment \((?P<why>.*)\)\. ",
         Edge.tells, fact="foreign file", where=_TUNER),
    # ---- what is compiled
    Mark(r"Building JIT module (?P<module>[\w.+-]{1,300})", Edge.builds, "FlashInfer JIT", since="0.5.22",
         where=_JIT),
    Mark(r"Fetching (?P<module>\S{1,400}) from ", Edge.builds, "FlashInfer cubins",
         where="flashinfer: jit/cubin_loader.py"),
    Mark(r"Rebuilding JIT module (?P<module>\S{1,300}): (?P<why>.{1,200}) changed", Edge.builds, "SGLang JIT",
         fact="why", since="0.5.18", where=f"{_KERNELS}/cache.py"),
    Mark(r"JIT resource usage for (?P<module>[^\s:]{1,300})", Edge.tells, "SGLang JIT", since="0.5.21",
         where=f"{_KERNELS}/ninja.py"),
    Mark(r"Cached JIT module (?P<module>\S{1,300}) failed to load; rebuilding", Edge.builds, "SGLang JIT",
         fact="broken", since="0.5.14", where=f"{_KERNELS}"),
    Mark(r"Try DeepGEMM JIT Compiling for <(?P<module>\w{1,80})> (?P<shape>N=\d+, K=\d+, num_groups=\d+)",
         Edge.builds, "DeepGEMM", where=_DEEP_GEMM),
    Mark(r"Required memory for warmup: ", Edge.builds, "DeepGEMM", where=_DEEP_GEMM),
    Mark(r"Compiling a graph for (?:dynamic shape|shape .{1,80}?) takes " + NUMBER, Edge.took, "Inductor",
         where=_COMPILATION),
    Mark(r"DeepSeek V4 MHC (?:prenorm )?prewarm at load: compile " + NUMBER + "s", Edge.took, "TileLang",
         since="0.5.15", where="srt/models/deepseek_v4.py"),
    # ---- graphs
    Mark(r"Capture (?:cuda|cpu|npu) graph begin", Edge.opens, "decode graphs", until="0.5.13", where=_RUNNER),
    Mark(r"Capture (?:cuda|cpu|npu) graph end", Edge.closes, "decode graphs", _AFTER_GRAPHS, until="0.5.13",
         where=_RUNNER),
    Mark(r"Capture piecewise CUDA graph begin", Edge.opens, "prefill graphs", until="0.5.13", where=_RUNNER),
    Mark(r"Capture piecewise CUDA graph end", Edge.closes, "prefill graphs", _AFTER_GRAPHS, until="0.5.13",
         where=_RUNNER),
    Mark(r"Capture target prefill \S{1,9} graph begin", Edge.opens, "prefill graphs", since="0.5.14",
         where=_GRAPHS),
    Mark(r"Capture target prefill \S{1,9} graph end", Edge.closes, "prefill graphs", _AFTER_GRAPHS,
         since="0.5.14", where=_GRAPHS),
    Mark(r"Capture target (?:decode|verify) \S{1,9} graph begin", Edge.opens, "decode graphs", since="0.5.14",
         where=_GRAPHS),
    Mark(r"Capture target (?:decode|verify) \S{1,9} graph end", Edge.closes, "decode graphs", _AFTER_GRAPHS,
         since="0.5.14", where=_GRAPHS),
    Mark(rf"Capture {_DRAFTS} begin", Edge.opens, "draft graphs", where=_EAGLE),
    Mark(rf"Capture {_DRAFTS} end", Edge.closes, "draft graphs", _AFTER_GRAPHS, where=_EAGLE),
)  # fmt: skip

# Of a server that we start ourselves: what comes before it logs for the first time is known too.
FIRST_LINE = Mark("first line", Edge.passes, "first line", ("arguments", "setup"))
