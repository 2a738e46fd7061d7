"""The last start in a server's log: the log of any SGLang since 0.4, whole or cut off."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from pathlib import Path

from sgl_tune.errors import UsageError
from sgl_tune.log_lines import LogLine, line_parser, log_pieces
from sgl_tune.server_log.ends import FOLLOWS, OF_NO_RANK, End, kind_of
from sgl_tune.server_log.oom import Frame, frame_of, oom_of
from sgl_tune.server_log.rank_log import LoggedOom, RankLog, ServerLog
from sgl_tune.server_log.rank_reader import RankReader

_REFUSALS = (
    "Not enough memory. Please try to increase",
    "Not enough memory to allocate",
    "Loaded weights leave no GPU memory",
    "The memory capacity is unbalanced",
)
_ARGS, _READY = "server_args=", "The server is fired up and ready to roll!"
_BATCHES = ("Decode batch", "Prefill batch")
_SERVING = (*_BATCHES, "INFO: ")
_PROCESS = re.compile(r"\bscheduler_(\d{1,5}) \(pid=|\bRank (\d{1,5}) scheduler died")
_NODE = re.compile(r"\bnode_rank'?[=:] ?(\d{1,5})")
_OF_A_NODE = re.compile(
    r"\b(?:node_rank|host|port|nccl_port|dist_init_addr|random_seed|base_gpu_id|log_[a-z_]{1,30}"
    r"|file_storage_path|crash_dump_folder|bucket_[a-z_]{1,40})'?[=:] ?(?:'[^']{0,400}'|[^,)}]{0,400})"
)
_MOST_RANKS = 4096
_MOST_ENDS = 1024

Key = tuple[str, str]  # source and rank


def read_server_log(path: Path) -> ServerLog:
    """The last start that `path` shows; a file without one is the user's mistake."""
    reader, parse = _Reader(), line_parser()
    for number, raw in enumerate(log_pieces(path), 1):
        reader.feed(parse(raw), number)
    log = reader.finish(path)
    if not (log.ranks or log.ended or log.is_ready or log.server_args):
        raise UsageError(
            f"{path} tells of no start of a server: no line of SGLang's start, no out-of-memory message",
            "give the server's own output, from 'server_args=' on",
        )
    return log


class _Reader:
    def __init__(self) -> None:
        self._starts = 1
        self._nodes: dict[Key, None] = {}  # pods and their node ranks that printed their arguments
        self._ranks: dict[Key, RankReader] = {}
        self._server_args: dict[str, str] = {}
        self._frames: dict[str, deque[Frame]] = {}  # of the traceback at hand, by source
        self._oom: LoggedOom | None = None
        self._refused: tuple[Key, str, int] | None = None
        self._ends: list[End] = []
        self._ready: set[str] = set()
        self._spoke: dict[str, int] = {}  # the last line by source that shows no end

    def feed(self, line: LogLine, number: int = 0) -> None:
        if line.text.startswith(_SERVING) and not self._is_dying:
            return  # nearly all lines of a server that serves
        if line.is_entry and line.text.startswith(_ARGS):
            self._arguments(line)
            return
        rank, frames = self._rank(line)
        if line.is_entry:
            frames.clear()
            done = len(rank.steps)
            rank.entry(line.text)
            if self._is_dying and (len(rank.steps) > done or line.text.startswith((*_BATCHES, _READY))):
                self._survived((line.source, line.rank))
            if line.text.startswith(_READY):
                self._ready.add(line.source)
        elif frame := frame_of(line.text):
            frames.append(frame)
        else:
            rank.capturing(line.text)
        self._failure(line, number, rank, frames)

    def _failure(self, line: LogLine, number: int, rank: RankReader, frames: deque[Frame]) -> None:
        text = line.text
        oom = oom_of(text, line.source, line.rank, rank.phase, frames, number)
        if oom is not None:
            self._oom = self._oom or oom
            return
        if self._refused is None and "emory" in text and (at := _refusal(text)) is not None:
            self._refused = (line.source, line.rank), text[at : at + 400].strip(), number
        elif len(self._ends) < _MOST_ENDS and (kind := kind_of(text, line.is_entry)):
            rank_name = line.rank if line.is_entry or kind.name not in OF_NO_RANK else ""
            self._ends.append(End(kind, text.strip()[:1000], line.source, rank_name, number))
        elif line.is_entry or text.startswith("INFO: "):
            self._spoke[line.source] = number

    def finish(self, path: Path) -> ServerLog:
        ranks = {key: rank for key, rank in self._ranks.items() if rank.has_begun}
        told = {key: rank.told(self._sizes(key[0])) for key, rank in ranks.items()}
        end = min(filter(self._is_death, self._ends), key=lambda end: end.kind.level, default=None)
        end = end and _with_rank(end, told)
        key = self._led_by(end, told)
        args = self._server_args
        own = args.get(key[0]) or args.get("")
        others = tuple(source for source, text in args.items() if own and _flags(text) != _flags(own))
        return ServerLog(
            lead=told.get(key) or RankLog(*key),
            ranks=tuple(told[key] for key in sorted(told, key=_order)),
            oom=self._oom,
            refusal=self._refused[1] if self._refused else "",
            refused_at=self._refused[2] if self._refused else 0,
            end=end,
            is_ready=bool(self._ready),
            starts=self._starts,
            server_args=own or next(iter(args.values()), None),
            others=others,
            path=path,
        )

    @property
    def _is_dying(self) -> bool:
        return self._oom is not None or bool(self._ends)

    def _survived(self, key: Key) -> None:
        """Who goes on with the start, or serves, did not die of what was logged before."""
        if self._oom is not None and (self._oom.source, self._oom.rank) == key:
            self._oom = None
        self._ends = [end for end in self._ends if (end.source, end.rank) != key]

    def _is_death(self, end: End) -> bool:
        """A traceback may be of a request that failed: the server then goes on, and no process ends."""
        if not end.kind.at_start or self._spoke.get(end.source, 0) < end.line:
            return True
        return any(of.kind.level >= FOLLOWS and of.source == end.source for of in self._ends)

    def _led_by(self, end: End | None, told: dict[Key, RankLog]) -> Key:
        """The rank that died; else the one that came least far, of these the one with the least free."""
        if self._oom is not None:
            return self._oom.source, self._oom.rank
        if self._refused is not None:
            return self._refused[0]
        if end is not None:
            if (end.source, end.rank) in told:
                return end.source, end.rank
            peers = [key for key in told if key[0] == end.source]
            return min(peers, key=lambda key: len(told[key].steps), default=(end.source, end.rank))
        return min(told, key=lambda key: _least(told[key]), default=("", ""))

    def _arguments(self, line: LogLine) -> None:
        """A pod that prints its arguments again starts again; the nodes of one server each print theirs."""
        node = _NODE.search(line.text)
        key = line.source, node[1] if node else ""
        if key in self._nodes:
            self._starts += 1
            self._restart(line.source)
        self._nodes[key] = None
        self._server_args.setdefault(line.source, line.text)

    def _restart(self, source: str) -> None:
        self._nodes = {key: None for key in self._nodes if key[0] != source}
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[0] != source}
        self._ends = [end for end in self._ends if end.source != source]
        self._server_args.pop(source, None)
        self._ready.discard(source)
        if self._oom is not None and self._oom.source == source:
            self._oom = None
        if self._refused is not None and self._refused[0][0] == source:
            self._refused = None

    def _rank(self, line: LogLine) -> tuple[RankReader, deque[Frame]]:
        """Beyond the most that a log can be of, what nobody reads."""
        key = line.source, line.rank
        if key not in self._ranks and len(self._ranks) >= _MOST_RANKS:
            return RankReader(*key), deque()
        rank = self._ranks.get(key) or self._ranks.setdefault(key, RankReader(*key))
        frames = self._frames.get(line.source)
        return rank, self._frames.setdefault(line.source, deque(maxlen=64)) if frames is None else frames

    def _sizes(self, source: str) -> dict[str, int]:
        return next((of.sizes for key, of in self._ranks.items() if key[0] == source and of.sizes), {})


def _with_rank(end: End, told: dict[Key, RankLog]) -> End:
    """The server's own process names the rank whose process died, by its number."""
    number = _PROCESS.search(end.text)
    if end.rank or number is None:
        return end
    name = f"TP{number[1] or number[2]}"
    ranks = [rank for source, rank in told if source == end.source and name in rank.split()]
    return replace(end, rank=ranks[0]) if len(ranks) == 1 else end


def _flags(server_args: str) -> str:
    """Without what differs between the nodes and the replicas of one server."""
    return _OF_A_NODE.sub("", server_args)


def _refusal(text: str) -> int | None:
    return next((at for words in _REFUSALS if (at := text.find(words)) >= 0), None)


def _least(rank: RankLog) -> float:
    return float("inf") if rank.least_free_bytes is None else rank.least_free_bytes


def _order(key: Key) -> tuple[str, list[int]]:
    """TP10 comes after TP9."""
    return key[0], [int(number) for number in re.findall(r"\d+", key[1])]
