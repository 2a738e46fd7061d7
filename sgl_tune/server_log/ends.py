"""How servers die, as data: the line that shows a death, its meaning, and the remedy. The lines come from
SGLang, torch, NCCL, Python and the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runtime.devices.readings import OutOfMemory, parse_out_of_memory, parse_size
from runtime.server.nearest import meant
from sgl_tune.log_lines import LogLine

# If a log shows several deaths, the one of the lowest level is the cause of the others.
MEMORY, REFUSED, CAUSE, EXCEPTION, FOLLOWS, NOTICE = range(6)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of death. `at_start`: its words count only at the beginning of a traceback's last line.
    `paste`: flags for a new start."""

    name: str
    words: re.Pattern[str]
    what: str
    way_out: str
    level: int = CAUSE
    at_start: bool = False
    paste: str = ""


class Frame(NamedTuple):
    file: str
    line: str
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a server. `text`: the line that shows it. `line`: its number from 1. `numbers`: None if
    the message has none. `others_bytes`: the GPU memory of other processes, if torch shows this process's
    share."""

    kind: Kind
    text: str
    source: str
    rank: str
    line: int
    phase: str = "setup"
    at: float = 0.0
    frames: tuple[Frame, ...] = ()
    numbers: OutOfMemory | None = None
    others_bytes: int | None = None

    @property
    def where(self) -> str:
        """Return the innermost frame outside torch, because a reader can act on it."""
        frame = next((frame for frame in reversed(self.frames) if "/torch/" not in frame.file), None)
        return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} in {frame.function}" if frame else ""


def _kind(name: str, level: int, words: str, what: str, way_out: str, paste: str = "") -> Kind:
    return Kind(name, re.compile(words), what, way_out, level, words.startswith("(?#start)"), paste)


_HOST = "give the container more host memory, or lower --hicache-size, --hicache-ratio, --cpu-offload-gb"
KINDS = (
    _kind("out of memory", MEMORY,
          r"out of memory\. Tried to allocate \d{1,9}(?:\.\d{1,9})? (?:bytes|[KMG]iB)|error: out of memory"
          r"|(?:CUDA|HIP|NPU) out of memory(?!\. Tried)|Cuda failure (?:\d{1,4} )?'out of memory'"
          r"|CUDA_ERROR_OUT_OF_MEMORY|Triton Error \[CUDA\]: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
          r"|deep_ep\.cpp:\d{1,5} 'inval",
          "the GPU's memory ended", "lower --mem-fraction-static"),
    _kind("refused", REFUSED,
          r"Not enough memory\. Please try to increase|Not enough memory to allocate|The memory capacity is "
          r"unbalanced|Loaded weights leave no GPU memory",
          "SGLang found too little memory", "raise --mem-fraction-static, or use more GPUs (--tp)"),
    _kind("import", CAUSE, r"(?#start)(?:ModuleNotFoundError|ImportError): ",
          "a Python module is missing or cannot be imported",
          "install the module in the server's environment, or use an image that contains it"),
    _kind("port in use", CAUSE,
          r"\[Errno 98\]|EADDRINUSE|Port is already in use\.|error while attempting to bind on address",
          "a port that the server needs is in use",
          "stop the other process, or choose another port (--port, --nccl-port, --dist-init-addr)"),
    _kind("arguments", CAUSE,
          r"\w[\w.-]{0,80}: error: (?:unrecognized arguments|argument |the following arguments are required)",
          "SGLang does not accept the command line",
          "correct the flag: `python -m sglang.launch_server --help` lists the flags of this release"),
    _kind("no GPU", CAUSE,
          r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device"
          r"|device\(s\) is/are busy or unavailable",
          "torch finds no usable GPU",
          "check `nvidia-smi` in the container: the driver, the GPU request and CUDA_VISIBLE_DEVICES"),
    _kind("driver", CAUSE, r"CUDA driver version is insufficient|NVIDIA driver on your system is too old",
          "the node's NVIDIA driver is older than the CUDA of this image",
          "update the node's driver, or use an image of an older CUDA (`nvidia-smi` shows which still runs)"),
    _kind("no kernel", CAUSE, r"no kernel image is available|not compiled with GPU architecture",
          "a package holds no kernel for this GPU",
          "install torch, sgl-kernel and FlashInfer builds that support this GPU's architecture"),
    _kind("disk", CAUSE, r"No space left on device|insufficient shared memory|^Bus error",
          "a disk or /dev/shm is full",
          "free space, or mount a larger volume (for /dev/shm: --shm-size, or an emptyDir of medium Memory)"),
    _kind("host memory", CAUSE,
          r"Not enough host memory|DefaultCPUAllocator: |Cannot allocate memory|^MemoryError",
          "the host's memory is too small",
          _HOST),
    _kind("model files", CAUSE,
          r"is not a local folder and is not a valid model identifier|does not appear to have a file named"
          r"|GatedRepoError|RepositoryNotFoundError|LocalEntryNotFoundError|Cannot access gated repo"
          r"|Cannot find any model weights|SafetensorError",
          "the model's files cannot be read", "check --model-path, the mounted folder and HF_TOKEN"),
    _kind("compiler", CAUSE,
          r"[Nn]inja build failed|ninja: build stopped|nvcc fatal|error: command '[^']*nvcc' failed",
          "a kernel could not be compiled",
          "read the compiler's first error above this line; a cache of compiled kernels avoids the build"),
    _kind("NCCL", FOLLOWS,
          r"NCCL error|DistBackendError|nccl(?:System|UnhandledCuda|Internal|Remote)Error|gloo/transport/"
          r"|Watchdog caught collective operation timeout",
          "communication between the ranks failed",
          "find the rank that ended first; if none did, check the network (NCCL_SOCKET_IFNAME) and /dev/shm",
          "NCCL_DEBUG=WARN"),
    _kind("CUDA error", CAUSE, r"CUDA error: (?!operation failed due to a previous error)",
          "a kernel failed on the GPU",
          "start again so that the traceback names the kernel; check `dmesg` for Xid errors",
          "CUDA_LAUNCH_BLOCKING=1"),
    _kind("killed", FOLLOWS,
          r"[Ee]xit ?code:?=? ?-9\b|terminated with -9\b|OOMKilled|^Killed$|[Ee]xit ?code:?=? ?137\b"
          r"|ut of memory: Killed process \d{1,9} \((?:sglang|python|pt_main)",
          "a process was killed (SIGKILL); most often the host ran out of memory",
          f"{_HOST}; `dmesg -T | grep -i oom` shows whether it was memory"),
    _kind("watchdog", FOLLOWS, r"[Ww]atchdog timeout \((?!.*soft=True)",
          "a forward batch took longer than the watchdog allows, so SGLang ended the server",
          "look at what the ranks did last (a compilation, a collective that hangs), or give it more time",
          "--watchdog-timeout 1200"),
    _kind("stopped", FOLLOWS, r"SIGTERM received",
          "the server was stopped (SIGTERM)",
          "find who stopped it: a probe that does not wait for the start, an eviction, a new deployment"),
    _kind("crash", FOLLOWS,
          r"[Ee]xit ?code:?=? ?-\d{1,2}\b|terminated with -\d{1,2}\b|Fatal Python error: |^Segmentation",
          "a process of the server crashed", "look for the first error of that process above this line"),
    _kind("exception", EXCEPTION,
          r"(?#start)(?!EOFError|BrokenPipe|Connection|KeyboardInterrupt|SystemExit|\S*CancelledError"
          r"|RuntimeError: (?:Initialization failed|Rank \d))[A-Za-z_][\w.]{0,150}(?:Error|Exception)\b",
          "an exception that the server does not handle", "read the traceback above this line"),
    _kind("ended", NOTICE,
          r"Received sigquit from a child process|Initialization failed|hit an exception|scheduler is dead"
          r"|[Ee]xit ?code:?=? ?[1-9]\d{0,2}\b|terminated with [1-9]",
          "a process of the server ended",
          "the log does not show why: look for an earlier part of it, or the output of the other ranks"),
)  # fmt: skip
# Exceptions whose traceback shows more than their last line.
_BY_FRAME = (
    (
        re.compile(r"server_args\.py|\bcheck_server_args|model_config\.py"),
        _kind("arguments", CAUSE, "(?#start)", "SGLang refuses these flags for this model",
              "change the flag that the message names"),
    ),
    (
        re.compile(r"\bload_weights|\bweight_loader"),
        _kind("weights", CAUSE, "(?#start)", "the checkpoint does not match SGLang's code for this model",
              "check that this release supports the model and its quantization (--quantization), and that "
              "the folder holds one complete checkpoint"),
    ),
)  # fmt: skip
# Printed by the server's own process or by a shell: not by the rank that logged last.
_OF_NO_RANK = frozenset(("killed", "crash", "port in use", "arguments", "ended", "NCCL"))
# A fast first check: a line without any of these shows no death.
_HINTS = (
    "rror", "xception", "xit code", "xitcode", "terminated with", "Killed", "atchdog", "in use.", "sigquit",
    "SIGTERM", "No space", "Initialization failed", "NVIDIA", "CUDA", "ninja", "nvcc", "is not a local",
    "does not appear", "gated repo", "model weights", "emory", "is dead", "Segmentation", "gloo/",
)  # fmt: skip
FRAME = re.compile(r'^ {1,8}File "([^"]{1,400})", line (\d{1,7}), in (\S{1,100})')
_PROCESS = re.compile(r"[Tt]his process has (\d{1,9}(?:\.\d+)? (?:bytes|KiB|MiB|GiB)) memory in use")


def kind_of(text: str, is_entry: bool) -> Kind | None:
    """Return the death that a line shows. A log entry cannot be the last line of a traceback."""
    if not any(hint in text for hint in _HINTS):
        return None
    text = text[:2000]
    for kind in KINDS:
        if (not is_entry and kind.words.match(text)) if kind.at_start else kind.words.search(text):
            return kind
    return None


def death_of(
    line: LogLine, number: int, phase: str, frames: Sequence[Frame], at: float, flags: Iterable[str] = ()
) -> Death | None:
    """Return the death that a line shows, with the traceback before it. `flags`: those in the usage text
    above."""
    text, rank = line.text, line.rank
    kind = kind_of(text, line.is_entry)
    if kind is None:
        return None
    calls = " ".join(f"{frame.file} {frame.function}" for frame in frames)
    numbers = others = None
    if kind.level == MEMORY:
        numbers = parse_out_of_memory(text)
        if numbers and numbers.total_bytes and (process := _PROCESS.search(text)):
            others = max(0, numbers.total_bytes - numbers.free_bytes - parse_size(process[1]))
        phase = "autotune" if any("autotune" in frame.function for frame in frames) else phase
    elif kind.level == REFUSED and (found := kind.words.search(text)):
        text = text[found.start() : found.start() + 400]
    elif kind.level == EXCEPTION:
        kind = next((by for words, by in _BY_FRAME if words.search(calls)), kind)
        if re.fullmatch(r"\w+(?:Error|Exception):?\s*", text) and frames and frames[-1].code:
            text = f"{text.strip()}: {frames[-1].code}"  # an assertion without a message
    if not line.is_entry and kind.name in _OF_NO_RANK:
        rank = ""
    text = text.strip()[:1000]
    if kind.name == "arguments":
        near = (meant(word.partition("=")[0], flags) for word in text.split() if word.startswith("--"))
        text += "".join(f" ({one})" for one in near if one)
    return Death(kind, text, line.source, rank, number, phase, at, tuple(frames), numbers, others)
