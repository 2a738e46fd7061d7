"""What a server said about its memory while it started: the log of any SGLang since 0.4, whole or cut off.

SGLang prints GiB and writes GB.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from runtime.devices.readings import OutOfMemory, parse_out_of_memory
from runtime.server.units import GIB
from sgl_tune.errors import UsageError
from sgl_tune.log_lines import LogLine, read_log

_FREE = re.compile(r"avail(?:able)?[_ ](?:gpu_)?mem=(\d{1,6}\.\d+)")
_USED = re.compile(r"mem usage=(-?\d{1,6}\.\d+)")
_SECONDS = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}\.\d+)")
_CAPTURE = re.compile(r"Capture (.{0,40}?) ?(?:CUDA graph|cuda graph|CPU graph)s? (begin|end)\b")
_POOL = re.compile(r"#tokens: (\d{1,15}), (?:K size: (\d{1,6}\.\d+) GB, V size|KV size): (\d{1,6}\.\d+) GB")
_SIZES = re.compile(
    r"\b(max_total_num_tokens|max_running_requests|chunked_prefill_size|context_len)=(\d{1,15})\b"
)
_FRAME = re.compile(r'^ {1,8}File "([^"]{1,400})", line (\d{1,7}), in (\S{1,100})')
_CAPTURED = {"prefill": "prefill graphs", "decode": "decode graphs", "verify": "decode graphs"}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the start that ended: its name is the report's phase."""

    phase: str
    free_bytes: int | None = None
    used_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedOom:
    """`numbers` is None where the log has only `CUDA error: out of memory`, from a kernel."""

    phase: str
    rank: str
    where: str
    message: str
    numbers: OutOfMemory | None


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The start of the rank that ran out of memory, else of the one with the least memory left."""

    rank: str
    ranks: int
    baseline_bytes: int | None
    steps: tuple[Step, ...]
    kv_tokens: int | None
    kv_bytes: int | None
    sizes: dict[str, int]
    oom: LoggedOom | None
    server_args: str | None

    @property
    def phase_now(self) -> str:
        return self.steps[-1].phase if self.steps else ""


@dataclass
class _Rank:
    steps: list[Step] = field(default_factory=list)
    phase: str = "communicator"
    baseline: int | None = None
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def least_free(self) -> float:
        return min((s.free_bytes for s in self.steps if s.free_bytes is not None), default=float("inf"))

    def has_done(self, phase: str) -> bool:
        return any(step.phase == phase for step in self.steps)


def read_server_log(path: Path) -> ServerLog:
    """The start that `path` tells of; a file without one is the user's mistake."""
    reader = _Reader()
    for line in read_log(path):
        reader.feed(line)
    log = reader.finish()
    if not log.steps and log.oom is None:
        raise UsageError(
            f"{path} tells of no start of a server: no 'avail mem=' line, no out-of-memory message",
            "give the server's own output, from 'Load weight begin' on",
        )
    return log


class _Reader:
    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}
        self._oom: LoggedOom | None = None
        self._server_args: str | None = None
        self._speaker = ""  # the last rank that logged: a traceback carries no name of its own
        self._frames: deque[tuple[str, str, str]] = deque(maxlen=64)

    def feed(self, line: LogLine) -> None:
        if line.is_entry:
            self._speaker = line.rank
            self._frames.clear()
            if line.text.startswith("server_args="):
                self._server_args = line.text
                return
            self._entry(self._rank(), line.text)
        elif frame := _FRAME.match(line.text):
            self._frames.append((frame[1], frame[2], frame[3]))
        if self._oom is None and "out of memory" in line.text:
            self._oom = self._read_oom(line.text)

    def finish(self) -> ServerLog:
        ranks = {name: rank for name, rank in self._ranks.items() if rank.steps or rank.baseline is not None}
        name = self._oom.rank if self._oom else min(ranks, key=lambda n: ranks[n].least_free, default="")
        rank = ranks.get(name) or _Rank()
        sizes = next((r.sizes for r in ranks.values() if r.sizes), {})
        return ServerLog(
            rank=name,
            ranks=len(ranks),
            baseline_bytes=rank.baseline,
            steps=tuple(rank.steps),
            kv_tokens=sizes.get("max_total_num_tokens", rank.kv_tokens),
            kv_bytes=rank.kv_bytes,
            sizes=sizes,
            oom=self._oom,
            server_args=self._server_args,
        )

    def _rank(self) -> _Rank:
        return self._ranks.setdefault(self._speaker, _Rank())

    def _entry(self, rank: _Rank, text: str) -> None:
        if text.startswith(("Init torch distributed ends", "Memory baseline taken")):
            rank.steps.append(_step("communicator", text))
        elif text.startswith("Load weight begin"):
            rank.phase = "draft weights" if rank.has_done("weights") else "weights"
            if rank.baseline is None:
                rank.baseline = _gib(_FREE, text)
        elif text.startswith("Load weight end"):
            rank.steps.append(_step(rank.phase, text))
            rank.phase = "kv pool"
        elif pool := _POOL.search(text):
            # The draft's pool and a sparse-attention indexer come in lines of their own.
            rank.kv_tokens = rank.kv_tokens or int(pool[1])
            rank.kv_bytes = (rank.kv_bytes or 0) + round((float(pool[2] or 0) + float(pool[3])) * GIB)
        elif text.startswith("Memory pool end"):
            rank.steps.append(_step("kv pool", text))
            rank.phase = "attention backend"
        elif text.startswith("Running FlashInfer autotune"):
            rank.phase = "autotune"
        elif text.startswith("FlashInfer autotune completed"):
            rank.steps.append(Step("autotune"))
            rank.phase = "after autotune"
        elif capture := _CAPTURE.match(text):
            self._capture(rank, _captured(capture[1]), capture[2], text)
        elif text.startswith("max_total_num_tokens="):
            rank.sizes.update((name, int(value)) for name, value in _SIZES.findall(text))
            rank.steps.append(_step("ready", text))
            rank.phase = "ready"

    def _capture(self, rank: _Rank, phase: str, edge: str, text: str) -> None:
        if edge == "begin":
            rank.phase = phase
        else:
            rank.steps.append(_step(phase, text))
            rank.phase = f"after {phase}"

    def _read_oom(self, line: str) -> LoggedOom | None:
        numbers = parse_out_of_memory(line, self._where())
        if numbers is None and "CUDA error: out of memory" not in line:
            return None
        tuning = any("autotune" in function for _, _, function in self._frames)
        phase = "autotune" if tuning else self._rank().phase
        return LoggedOom(phase, self._speaker, self._where(), line.strip()[:1000], numbers)

    def _where(self) -> str:
        """The innermost frame that is not torch's own: what a reader can act on."""
        for file, line, function in reversed(self._frames):
            if "/torch/" not in file:
                return f"{file.rsplit('/', 1)[-1]}:{line} in {function}"
        return ""


def _captured(name: str) -> str:
    """`target prefill`, `draft decode`; releases before 0.5.12 named none, and captured only decode."""
    words = name.split()
    if words[:1] == ["draft"]:
        return "draft graphs"
    if "piecewise" in words:
        return "prefill graphs"
    return _CAPTURED.get(words[-1] if words else "decode", "decode graphs")


def _step(phase: str, text: str) -> Step:
    seconds = _SECONDS.search(text)
    return Step(phase, _gib(_FREE, text), _gib(_USED, text), float(seconds[1]) if seconds else None)


def _gib(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return round(float(match[1]) * GIB) if match else None
