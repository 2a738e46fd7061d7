"""The lines that show a start, as data: what each line says about the time of its process. They were read
in the wheels of SGLang and of the FlashInfer that each release pins. SGLang's server silences FlashInfer's
own lines (`configure_logger`), so most logs lack those."""

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

HEAD = 4  # the first letters, by which a line's rows are found
NUMBER = r"(?P<seconds>\d{1,7}(?:\.\d{1,6})?)"
GRAPHS = ("prefill graphs", "decode graphs", "draft graphs")


class Edge(str, Enum):
    """What a line says about the time of its process."""

    opens = "opens"  # the phase goes on until the line that closes it
    closes = "closes"
    passes = "passes"  # only the next line of this table shows what follows
    took = "took"  # the line gives the duration of what it ends
    builds = "builds"  # the phase goes on until the process prints anything else
    tells = "tells"  # a fact without a time


@dataclass(frozen=True)
class Mark:
    """A known line of a log. `says`: its beginning. `then`: what may follow, up to the next line of this
    process in the table: the first phase that ends with that line, or, at the end of a log, with no line."""

    says: str
    edge: Edge
    phase: str = ""
    then: tuple[str, ...] = ()
    fact: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.says)

    @property
    def head(self) -> str:
        return self.says.replace("\\", "")[:HEAD]


_IN_POOL = ("kv pool", "attention backends")
_AFTER_POOL = ("attention backends", "kv pool", "draft setup")
_AFTER_GRAPHS = ("scheduler", "draft setup")
_GRAPH = r"Capture (?P<what>[\w -]{0,40}?) ?(?:CUDA|cuda|CPU|cpu|NPU|npu) graphs?"

ARGUMENTS = Mark(r"server_args=", Edge.passes, "arguments", ("processes",))
MARKS = (
    # ---- the server's own process
    ARGUMENTS,
    Mark(r"max_total_num_tokens=", Edge.passes, "scheduler", ("http server",), "scheduler"),
    Mark(r"INFO: +(?:Started server process|Waiting for application startup)", Edge.passes, "http server",
         ("http server",)),
    Mark(r"INFO: +(?:Application startup complete|Uvicorn running on)", Edge.passes, "http server",
         ("warm-up request",)),
    Mark(r"Start of pd disaggregation warmup", Edge.opens, "warm-up request"),
    Mark(r"End of disaggregation warmup", Edge.closes, "warm-up request"),
    Mark(r"The server is fired up and ready to roll!", Edge.passes, "ready", fact="ready"),
    # ---- the communicator
    Mark(r"Init (?:torch distributed|parallel) begin", Edge.opens, "communicator"),
    Mark(r"Init (?:torch distributed|parallel) ends", Edge.closes, "communicator", ("model setup",)),
    Mark(rf"NCCL/RCCL(?:/HCCL)? warmup completed in {NUMBER}s", Edge.took, "communicator", ("model setup",)),
    # ---- weights and the pool
    Mark(r"Load weight begin", Edge.opens, "weights"),
    Mark(r"Load weight end", Edge.closes, "weights", ("kv pool", "draft setup")),
    Mark(r"KV Cache VA upper bound", Edge.tells, fact="pool comes last"),
    Mark(r"KV Cache is allocated", Edge.passes, "kv pool", _IN_POOL, "pool"),
    Mark(r"Mamba Cache is allocated", Edge.passes, "kv pool", _IN_POOL),
    Mark(r"Memory pool end", Edge.passes, "kv pool", _AFTER_POOL, "pool ends"),
    Mark(r"Post-capture KV sizing: KV cache allocated", Edge.passes, "kv pool", ("scheduler",), "last pool"),
    # ---- tactics
    Mark(r"Running FlashInfer autotune with cache: (?P<path>.+)", Edge.opens, "tactics", fact="cache"),
    Mark(r"Running FlashInfer autotune \(cache reuse DISABLED.*?; writing fresh result to: (?P<path>.+)",
         Edge.opens, "tactics", fact="no reuse"),
    Mark(r"Running FlashInfer autotune", Edge.opens, "tactics"),
    Mark(r"FlashInfer autotune completed", Edge.closes, "tactics", _AFTER_POOL),
    Mark(r"FlashInfer autotune: per-rank caches disagree", Edge.tells, fact="disagree"),
    Mark(r"\[Autotuner\]: Autotuning process starts", Edge.opens, "tactics"),
    Mark(r"\[Autotuner\]: Autotuning process ends", Edge.closes, "tactics"),
    Mark(r"\[Autotuner\]: Loaded (?P<count>\d{1,9}) configs from (?P<path>.+)", Edge.tells,
         fact="loaded file"),
    Mark(r"\[Autotuner\]: Saved (?P<count>\d{1,9}) configs to (?P<path>.+) \((?P<new>\d{1,9}) new,",
         Edge.tells, fact="saved file"),
    Mark(r"\[Autotuner\]: Cache file (?P<path>.+?) was created in a different environment \((?P<why>.*)\)\. ",
         Edge.tells, fact="foreign file"),
    # ---- what is compiled
    Mark(r"Building JIT module (?P<module>[\w.+-]{1,300})", Edge.builds, "FlashInfer JIT"),
    Mark(r"Fetching (?P<module>\S{1,400}) from ", Edge.builds, "FlashInfer cubins"),
    Mark(r"Rebuilding JIT module (?P<module>\S{1,300}): (?P<why>.{1,200}) changed", Edge.builds, "SGLang JIT",
         fact="why"),
    Mark(r"JIT resource usage for (?P<module>[^\s:]{1,300})", Edge.tells, "SGLang JIT"),
    Mark(r"Cached JIT module (?P<module>\S{1,300}) failed to load; rebuilding", Edge.builds, "SGLang JIT",
         fact="broken"),
    Mark(r"Try DeepGEMM JIT Compiling for <(?P<module>\w{1,80})> (?P<shape>N=\d+, K=\d+, num_groups=\d+)",
         Edge.builds, "DeepGEMM"),
    Mark(r"Required memory for warmup: ", Edge.builds, "DeepGEMM"),
    Mark(r"Compiling a graph for (?:dynamic shape|shape .{1,80}?) takes " + NUMBER, Edge.took, "Inductor"),
    Mark(r"DeepSeek V4 MHC (?:prenorm )?prewarm at load: compile " + NUMBER + "s", Edge.took, "TileLang"),
    # ---- graphs: `what` decides whose
    Mark(rf"{_GRAPH} begin", Edge.opens, "graphs"),
    Mark(rf"{_GRAPH} end", Edge.closes, "graphs", _AFTER_GRAPHS),
)  # fmt: skip

# The first line of a server that we start ourselves, whose beginning is known.
FIRST_LINE = Mark("first line", Edge.passes, "first line", ("arguments", "setup"))
NOTHING_BUILT = Mark("", Edge.tells)  # a process that was building printed another line


def graph_phase(what: str) -> str:
    """Return the phase of graphs in `target prefill` or `draft decode`. Older releases name no graphs and
    capture only decode."""
    words = what.split()
    if "draft" in words:
        return "draft graphs"
    return "prefill graphs" if {"prefill", "piecewise"} & {*words} else "decode graphs"
