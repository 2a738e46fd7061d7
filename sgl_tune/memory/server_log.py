"""What a server said about its memory while it started: the log of any SGLang since 0.4, whole or cut off.

SGLang prints GiB and writes GB.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from runtime.devices.readings import parse_out_of_memory, parse_size
from runtime.server.units import GIB
from sgl_tune.errors import UsageError
from sgl_tune.log_lines import LogLine, read_log
from sgl_tune.memory.rank_log import Capture, LoggedOom, RankLog, ServerLog, Step

_FREE = re.compile(r"avail(?:able)?[_ ](?:gpu_)?mem=(\d{1,6}\.\d+)")
_USED = re.compile(r"mem usage=(-?\d{1,6}\.\d+)")
_SECONDS = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}\.\d+)")
_CAPTURE = re.compile(r"Capture (.{0,40}?) ?(?:CUDA graph|cuda graph|CPU graph)s? (begin|end)\b")
_POOL = re.compile(r"#tokens: (\d{1,15}), (?:K size: (\d{1,6}\.\d+) GB, V size|KV size): (\d{1,6}\.\d+) GB")
_RESERVED = "KV Cache VA upper bound"  # addresses alone: the pool itself is made after the captures
_SIZES = re.compile(
    r"\b(max_total_num_tokens|max_running_requests|chunked_prefill_size|context_len)=(\d{1,15})\b"
)
_FRAME = re.compile(r'^ {1,8}File "([^"]{1,400})", line (\d{1,7}), in (\S{1,100})')
_CAPTURING = re.compile(r"Capturing [^()]{1,40}\(((?:[a-z_]{1,20}=\d{1,9} )?)avail_mem=(\d{1,6}\.\d+) GB\)")
_REFUSALS = (
    "Not enough memory. Please try to increase",
    "Not enough memory to allocate",
    "Loaded weights leave no GPU memory",
    "The memory capacity is unbalanced",
)
# Of torch, cut off; of a kernel; of NCCL; of DeepEP where NVSHMEM's heap finds too little.
_WITHOUT_NUMBERS = re.compile(
    r"CUDA out of memory(?!\. Tried)|CUDA error: out of memory|Cuda failure (?:\d{1,4} )?'out of memory'"
    r"|deep_ep\.cpp:\d{1,5} 'invalid argument'"
)
_PROCESS = re.compile(r"[Tt]his process has (\d{1,9}(?:\.\d+)? (?:bytes|KiB|MiB|GiB)) memory in use")
_OF_A_NODE = re.compile(
    r"\b(?:node_rank|host|port|nccl_port|dist_init_addr|random_seed|base_gpu_id|log_[a-z_]{1,30}"
    r"|file_storage_path|crash_dump_folder|bucket_[a-z_]{1,40})'?[=:] ?(?:'[^']{0,400}'|[^,)}]{0,400})"
)
_MOST_RANKS = 4096
_CAPTURED = {"prefill": "prefill graphs", "decode": "decode graphs", "verify": "decode graphs"}


@dataclass
class _Rank:
    source: str
    rank: str
    steps: list[Step] = field(default_factory=list)
    phase: str = "communicator"
    entered: int | None = None
    baseline: int | None = None
    capture: Capture | None = None
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    pool_comes_last: bool = False
    sizes: dict[str, int] = field(default_factory=dict)

    def enter(self, phase: str, text: str = "") -> None:
        self.phase, self.entered, self.capture = phase, _gib(_FREE, text), None

    def leave(self, phase: str, text: str, then: str) -> None:
        found = _SECONDS.search(text)
        seconds = float(found[1]) if found else None
        before = self.entered if self.phase == phase else None
        self.steps.append(Step(phase, _gib(_FREE, text), _gib(_USED, text), seconds, before))
        self.enter(then)

    def load(self, text: str, ends: bool = False) -> None:
        phase = "draft weights" if self.has_done("weights") else "weights"
        if not ends:
            self.enter(phase, text)
        elif self.phase != phase:  # its begin is not in the log
            free, used = _gib(_FREE, text), _gib(_USED, text)
            self.phase, self.entered = phase, free + used if free is not None and used is not None else None
        if self.baseline is None:
            self.baseline = self.entered
        if ends:
            self.leave(phase, text, "kv pool")

    def has_done(self, phase: str) -> bool:
        return any(step.phase == phase for step in self.steps)

    def told(self, sizes: dict[str, int]) -> RankLog:
        """Only one rank of a server prints its sizes."""
        return RankLog(
            source=self.source,
            rank=self.rank,
            phase=self.phase,
            baseline_bytes=self.baseline,
            entered_bytes=self.entered,
            steps=tuple(self.steps),
            capture=self.capture,
            kv_tokens=sizes.get("max_total_num_tokens", self.kv_tokens),
            kv_bytes=self.kv_bytes,
            pool_comes_last=self.pool_comes_last,
            sizes=sizes,
        )


def read_server_log(path: Path) -> ServerLog:
    """The start that `path` tells of; a file without one is the user's mistake."""
    reader = _Reader()
    for line in read_log(path):
        reader.feed(line)
    log = reader.finish()
    if not log.lead.steps and not log.ended:
        raise UsageError(
            f"{path} tells of no start of a server: no 'avail mem=' line, no out-of-memory message",
            "give the server's own output, from 'Load weight begin' on",
        )
    return log


class _Reader:
    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], _Rank] = {}
        self._server_args: dict[str, str] = {}
        self._frames: dict[str, deque[tuple[str, str, str]]] = {}  # of the traceback at hand, by source
        self._oom: LoggedOom | None = None
        self._refused: tuple[tuple[str, str], str] | None = None

    def feed(self, line: LogLine) -> None:
        rank, frames = self._rank(line)
        if line.is_entry:
            frames.clear()
            if line.text.startswith("server_args="):
                self._server_args.setdefault(line.source, line.text)
                return
            self._entry(rank, line.text)
        elif frame := _FRAME.match(line.text):
            frames.append((frame[1], frame[2], frame[3]))
        elif capturing := _CAPTURING.search(line.text):
            rank.capture = Capture(capturing[1].strip(), round(float(capturing[2]) * GIB))
        if self._oom is None and ("out of memory" in line.text or "invalid argument" in line.text):
            self._oom = _oom(line, rank, tuple(frames))
        if self._refused is None and (at := _refusal(line.text)) is not None:
            self._refused = (line.source, line.rank), line.text[at : at + 400].strip()

    def finish(self) -> ServerLog:
        ranks = {key: rank for key, rank in self._ranks.items() if rank.steps or rank.baseline is not None}
        told = {key: rank.told(self._sizes(key[0])) for key, rank in ranks.items()}
        if self._oom is not None:
            key = self._oom.source, self._oom.rank
        elif self._refused is not None:
            key = self._refused[0]
        else:
            key = min(told, key=lambda key: _least(told[key]), default=("", ""))
        args = self._server_args
        own = args.get(key[0]) or args.get("")
        others = tuple(source for source, text in args.items() if own and _flags(text) != _flags(own))
        return ServerLog(
            lead=told.get(key) or RankLog(*key),
            ranks=tuple(told[key] for key in sorted(told, key=_order)),
            oom=self._oom,
            refusal=self._refused[1] if self._refused else "",
            server_args=own or next(iter(args.values()), None),
            others=others,
        )

    def _rank(self, line: LogLine) -> tuple[_Rank, deque[tuple[str, str, str]]]:
        """Beyond the most that a log can be of, what nobody reads."""
        key = line.source, line.rank
        if key not in self._ranks and len(self._ranks) >= _MOST_RANKS:
            return _Rank(*key), deque()
        rank = self._ranks.setdefault(key, _Rank(*key))
        return rank, self._frames.setdefault(line.source, deque(maxlen=64))

    def _sizes(self, source: str) -> dict[str, int]:
        return next((of.sizes for key, of in self._ranks.items() if key[0] == source and of.sizes), {})

    def _entry(self, rank: _Rank, text: str) -> None:
        if text.startswith(("Init torch distributed ends", "Memory baseline taken")):
            rank.leave("communicator", text, "communicator")
        elif text.startswith("Load weight begin"):
            rank.load(text)
        elif text.startswith("Load weight end"):
            rank.load(text, ends=True)
        elif text.startswith("Post-capture KV sizing: KV cache allocated") and (pool := _POOL.search(text)):
            rank.kv_tokens, rank.kv_bytes = int(pool[1]), round(float(pool[3]) * GIB)
            rank.leave("kv pool", text, "after kv pool")
        elif _RESERVED in text:
            rank.pool_comes_last = True
        elif pool := _POOL.search(text):
            # The draft's pool and a sparse-attention indexer come in lines of their own.
            rank.kv_tokens = rank.kv_tokens or int(pool[1])
            rank.kv_bytes = (rank.kv_bytes or 0) + round((float(pool[2] or 0) + float(pool[3])) * GIB)
        elif text.startswith("Memory pool end"):
            if not rank.pool_comes_last:
                rank.leave("kv pool", text, "attention backend")
        elif text.startswith("Running FlashInfer autotune"):
            rank.enter("autotune", text)
        elif text.startswith("FlashInfer autotune completed"):
            rank.leave("autotune", text, "after autotune")
        elif capture := _CAPTURE.match(text):
            phase = _captured(capture[1])
            if capture[2] == "begin":
                rank.enter(phase, text)
            else:
                rank.leave(phase, text, f"after {phase}")
        elif text.startswith("max_total_num_tokens="):
            rank.sizes.update((name, int(value)) for name, value in _SIZES.findall(text))
            rank.leave("ready", text, "ready")


def _oom(line: LogLine, rank: _Rank, frames: tuple[tuple[str, str, str], ...]) -> LoggedOom | None:
    where = _where(frames)
    numbers = parse_out_of_memory(line.text, where)
    if numbers is None and not _WITHOUT_NUMBERS.search(line.text):
        return None
    tuning = any("autotune" in function for _, _, function in frames)
    others = None
    if numbers and numbers.total_bytes and (process := _PROCESS.search(line.text)):
        others = max(0, numbers.total_bytes - numbers.free_bytes - parse_size(process[1]))
    return LoggedOom(
        phase="autotune" if tuning else rank.phase,
        rank=line.rank,
        where=where,
        message=line.text.strip()[:1000],
        numbers=numbers,
        source=line.source,
        frames=tuple(("/".join(file.split("/")[-2:]), function) for file, _, function in frames),
        others_bytes=others,
    )


def _where(frames: tuple[tuple[str, str, str], ...]) -> str:
    """The innermost frame that is not torch's own: what a reader can act on."""
    for file, line, function in reversed(frames):
        if "/torch/" not in file:
            return f"{file.rsplit('/', 1)[-1]}:{line} in {function}"
    return ""


def _flags(server_args: str) -> str:
    """Without what differs between the nodes and the replicas of one server."""
    return _OF_A_NODE.sub("", server_args)


def _refusal(text: str) -> int | None:
    return next((at for words in _REFUSALS if (at := text.find(words)) >= 0), None)


def _least(rank: RankLog) -> float:
    return float("inf") if rank.least_free_bytes is None else rank.least_free_bytes


def _order(key: tuple[str, str]) -> tuple[str, list[int]]:
    """TP10 comes after TP9."""
    return key[0], [int(number) for number in re.findall(r"\d+", key[1])]


def _captured(name: str) -> str:
    """`target prefill`, `draft decode`; releases before 0.5.12 named none, and captured only decode."""
    words = name.split()
    if words[:1] == ["draft"]:
        return "draft graphs"
    if "piecewise" in words:
        return "prefill graphs"
    return _CAPTURED.get(words[-1] if words else "decode", "decode graphs")


def _gib(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return round(float(match[1]) * GIB) if match else None
