"""How a server dies otherwise than by its GPU's memory, as data: the line that shows it, and the way out.

The lines are those of SGLang 0.5.12 to 0.5.23, of torch, of NCCL and of Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A death that follows from another one is only named where the log shows no other.
CAUSE, EXCEPTION, FOLLOWS, NOTICE = range(4)


@dataclass(frozen=True, slots=True)
class Kind:
    """`at_start`: the words count only where a traceback's last line begins."""

    name: str
    words: re.Pattern[str]
    what: str
    way_out: str
    level: int = CAUSE
    at_start: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """`text` is the line itself; `line` its number in the log, from 1."""

    kind: Kind
    text: str
    source: str
    rank: str
    line: int


def _kind(name: str, words: str, what: str, way_out: str, level: int = CAUSE, at_start: bool = False) -> Kind:
    return Kind(name, re.compile(words), what, way_out, level, at_start)


KINDS = (
    _kind(
        "import",
        r"(?:ModuleNotFoundError|ImportError): ",
        "a Python module is missing or cannot be imported",
        "install the module in the server's environment, or use an image that contains it",
        at_start=True,
    ),
    _kind(
        "port in use",
        r"\[Errno 98\]|EADDRINUSE|Port is already in use\.|error while attempting to bind on address",
        "a port that the server needs is in use",
        "stop the other process, or choose another port (--port, --nccl-port, --dist-init-addr)",
    ),
    _kind(
        "arguments",
        r"\w[\w.-]{0,80}: error: (?:unrecognized arguments|argument |the following arguments are required)",
        "SGLang does not accept the command line",
        "correct the flag: `python -m sglang.launch_server --help` lists the flags of this release",
    ),
    _kind(
        "no GPU",
        r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|CUDA driver version is "
        r"insufficient|NVIDIA driver on your system is too old",
        "torch finds no usable GPU",
        "check `nvidia-smi` in the container: the driver, the GPU request and CUDA_VISIBLE_DEVICES",
    ),
    _kind(
        "disk",
        r"No space left on device",
        "a disk or /dev/shm is full",
        "free space, or mount a larger volume (for /dev/shm: --shm-size, or an emptyDir of medium Memory)",
    ),
    _kind(
        "model files",
        r"is not a local folder and is not a valid model identifier|does not appear to have a file named"
        r"|GatedRepoError|RepositoryNotFoundError|LocalEntryNotFoundError|Cannot access gated repo"
        r"|Cannot find any model weights",
        "the model's files cannot be read",
        "check --model-path, the mounted folder and HF_TOKEN",
    ),
    _kind(
        "compiler",
        r"[Nn]inja build failed|ninja: build stopped|nvcc fatal|error: command '[^']*nvcc' failed",
        "a kernel could not be compiled",
        "read the compiler's first error above this line; a cache of compiled kernels avoids the build",
    ),
    _kind(
        "NCCL",
        r"NCCL error|DistBackendError|nccl(?:System|UnhandledCuda|Internal|Remote)Error"
        r"|Watchdog caught collective operation timeout",
        "communication between the ranks failed",
        "find the rank that ended first; if none did, start again with NCCL_DEBUG=WARN and check the network "
        "(NCCL_SOCKET_IFNAME) and /dev/shm",
        level=FOLLOWS,
    ),
    _kind(
        "CUDA error",
        r"CUDA error: (?!out of memory|operation failed due to a previous error)",
        "a kernel failed on the GPU",
        "start again with CUDA_LAUNCH_BLOCKING=1 to see which kernel; check `dmesg` for Xid errors",
    ),
    _kind(
        "killed",
        r"exit ?code:?=? ?-9\b|terminated with -9\b|OOMKilled|[Oo]ut of memory: Killed process|^Killed$"
        r"|exit ?code:?=? ?137\b",
        "a process was killed (SIGKILL); most often the host ran out of memory",
        "give the container more host memory, or lower what the server keeps there (--hicache-size, "
        "--cpu-offload-gb); `dmesg -T | grep -i oom` shows whether it was memory",
        level=FOLLOWS,
    ),
    _kind(
        "watchdog",
        r"[Ww]atchdog timeout \((?!.*soft=True)",
        "a forward batch took longer than the watchdog allows, so SGLang ended the server",
        "look at what the ranks did last (a compilation, a hang of a collective); --watchdog-timeout gives "
        "it more time",
        level=FOLLOWS,
    ),
    _kind(
        "stopped",
        r"SIGTERM received",
        "the server was told to stop (SIGTERM)",
        "find who stopped it: a liveness probe, an eviction or a new deployment; a probe must wait for the "
        "start to end",
        level=FOLLOWS,
    ),
    _kind(
        "crash",
        r"exit ?code:?=? ?-\d{1,2}\b|terminated with -\d{1,2}\b",
        "a process of the server crashed",
        "look for the first error of that process above this line",
        level=FOLLOWS,
    ),
    _kind(
        "exception",
        r"(?!EOFError|BrokenPipe|Connection|KeyboardInterrupt|SystemExit|\S*CancelledError"
        r"|\S*OutOfMemoryError|RuntimeError: Initialization failed)"
        r"[A-Za-z_][\w.]{0,150}(?:Error|Exception)\b",
        "an exception that the server does not handle",
        "read the traceback above this line",
        level=EXCEPTION,
        at_start=True,
    ),
    _kind(
        "ended",
        r"Received sigquit from a child process|Initialization failed|hit an exception"
        r"|exit ?code:?=? ?[1-9]\d{0,2}\b|terminated with [1-9]",
        "a process of the server ended",
        "the log does not show why: look for an earlier part of it, or the output of the other ranks",
        level=NOTICE,
    ),
)
# Printed by the server's own process or by a shell: who logged last before it says nothing of the rank.
OF_NO_RANK = frozenset(("killed", "crash", "port in use", "arguments", "ended"))
# Cheap to look for: a line without any of these shows no end.
_HINTS = (
    *(
        "rror",
        "xception",
        "xit code",
        "xitcode",
        "terminated with",
        "Killed",
        "atchdog",
        "in use.",
        "sigquit",
    ),
    *("SIGTERM", "No space", "Initialization failed", "NVIDIA", "CUDA", "ninja", "nvcc", "is not a local"),
    *("does not appear", "gated repo", "model weights"),
)


def kind_of(text: str, is_entry: bool) -> Kind | None:
    """Which end a line shows; an entry of the log is no last line of a traceback."""
    if not any(hint in text for hint in _HINTS):
        return None
    text = text[:2000]
    for kind in KINDS:
        if kind.at_start:
            if not is_entry and kind.words.match(text):
                return kind
        elif kind.words.search(text):
            return kind
    return None
