"""Read a server's log line by line, from any log collector: by pod and rank, without colours, with both
clocks. Logs may come from anyone, so lines are read in pieces of limited length."""

import errno
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular

STDIN = Path("-")
_GZIP, _UTF_16 = b"\x1f\x8b\x08", (b"\xff\xfe", b"\xfe\xff")  # how such files begin; Windows writes UTF-16
_PIECE = 1 << 16
_LARGEST, _SHORTEST = 1 << 30, 32  # a shorter line counts as much
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-B])")
_SECOND = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?"
_OF_A_YEAR = _SECOND.replace(r"\d{4}-", r"(?:\d{4}-)?")  # SGLang's diffusion servers print no year
_ENTRY = re.compile(rf"\[{_OF_A_YEAR}((?: [A-Z_]{{1,12}}\d{{1,6}}){{0,8}})\] (.*)", re.DOTALL)
_OTHER_LOGGER = re.compile(rf"{_SECOND} ")
# kubectl logs --prefix; Ray; docker compose logs; kubectl and docker logs --timestamps, CI; Docker Desktop or
# a program that starts the server; journalctl; a runtime's own file.
_POD = re.compile(r"\[pod/([^\]\s]{1,400})\] ?")
_RAY = re.compile(r"\(([^()]{1,200}\bpid=\d{1,9}[^()]{0,100})\) ")
_SERVICE = re.compile(r"([A-Za-z0-9][\w.@-]{0,200}) +\| ?")
_STAMP = re.compile(rf"\[?{_SECOND}(Z|[+-]\d\d:?\d\d)\]? ")
_DESKTOP = re.compile(r"[\d-]{10} [\d:]{8}(?:,\d{3} - \S{1,80} - \w{4,8} -)? (?P<known>\[20|Traceback )?")
_JOURNAL = re.compile(
    r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?([\w.-]{1,100}) (?:kernel|[\w@.:/-]{1,100}\[\d{1,10}\]): "
)
_STREAM = re.compile(r"(?:stdout|stderr) [FP] ")
# Before a server's entry these name a task, or a pod and its container; elsewhere any text.
_TASK = re.compile(
    r"(\d{1,6}): |\[(\d{1,6},\d{1,6})\](?:<std(?:out|err)>)?: ?|\[((?:rank|default)\d{1,6})\]: ?"
    r"|([a-z0-9][a-z0-9.-]{0,250}-[a-z0-9.-]{1,100} [a-z0-9-]{1,63}) "
)
# The prefix of other loggers' lines: time, level, place and name.
_LOGGER = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    r"(?:- [A-Z]{4,8} - )?(?:[\w.-]{1,80}:\d{1,6} - )?(?:[A-Za-z_][\w.]{0,120}:? )?"
)
_MOST_TASKS = 1024


class LogLine(NamedTuple):
    """A line. `text`: what the server wrote; of an entry, without time and rank. Lines that continue an
    entry, such as a traceback, have the entry's rank. `logged`: the server's own clock, only of an entry.
    `collected`: the collector's clock. `source`: the pod, container or task that the collector named."""

    text: str
    source: str = ""
    rank: str = ""
    logged: datetime | None = None
    collected: datetime | None = None
    is_entry: bool = False


def log_pieces(path: Path) -> Iterator[str]:
    """Yield the lines unparsed, for a caller that needs few of them."""
    try:
        yield from _pieces(path)
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path} is no whole gzip file: {error}") from error
    except OSError as error:
        said = f"{path} cannot be read: {error.strerror or error}"
        part = "give its last part: tail -c 500M FILE | sgl-tune ... -"
        way = part if error.errno == errno.EOVERFLOW else "give a server's log, or - for standard input"
        raise UsageError(said, way) from error


def line_parser() -> Callable[[str], LogLine]:
    """Return a parser for one log's lines in order: it remembers ranks, and how a task's lines begin."""
    return _Parser().line


def without_logger(text: str) -> str:
    head = _LOGGER.match(text)
    return text[head.end() :] if head else text


def _pieces(path: Path) -> Iterator[str]:
    left = _LARGEST
    with _opened(path) as file:
        while piece := file.readline(_PIECE):
            if (left := left - max(len(piece), _SHORTEST)) < 0:
                raise OSError(errno.EOVERFLOW, "is larger than a log of a start", str(path))
            yield piece.decode("utf-8", "replace") if isinstance(piece, bytes) else piece


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | TextIO]:
    """Open a log: `-` is standard input, gzip is unpacked, and UTF-16 decoded."""
    with ExitStack() as stack:
        named = sys.stdin.buffer if path == STDIN else stack.enter_context(open_regular(path, _LARGEST))
        file = cast(BufferedReader, named)
        if file.peek(3)[:3] == _GZIP:
            file = cast(BufferedReader, stack.enter_context(gzip.GzipFile(fileobj=file)))
        is_wide = file.peek(64)[:2] in _UTF_16 and b"\0" in file.peek(64)[:64]
        yield TextIOWrapper(file, "utf-16", "replace", "\n") if is_wide else cast(BinaryIO, file)


class _Parser:
    def __init__(self) -> None:
        self._speakers: dict[str, str] = {}  # the last rank that logged, by source
        self._telling: dict[str, str] = {}  # by source, the rank of the current traceback
        self._tasks: dict[str, str] = {}  # by source, the prefix of a task's lines
        self._is_desktop = False

    def line(self, raw: str) -> LogLine:
        if raw[:3] == "[20" and "\x1b" not in raw and not self._tasks:  # nearly all lines; ten times as fast
            entry = _ENTRY.match(raw.rstrip("\r\n"))
            if entry is not None and "\r" not in entry[4]:
                return self._entry(entry, "", None)
        text, source, collected = _uncollected(_COLOURS.sub("", raw).rstrip("\r\n").removeprefix("> "))
        if desktop := _DESKTOP.match(text):
            self._is_desktop |= desktop["known"] is not None
            text = text[desktop.end() - len(desktop["known"] or "") :] if self._is_desktop else text
        # A progress bar rewrites its line; only the last state can be read.
        text = text.rpartition("\r")[2]
        entry = _ENTRY.search(text)
        text, task = self._without_task(text, entry)
        source = source or task
        if entry is not None:
            return self._entry(entry, source, collected)
        if other := _OTHER_LOGGER.match(text):
            return LogLine(text, source, "", _time(other[1], other[2]), collected)
        rank = self._telling.get(source, self._speakers.get(source, ""))
        if text and not text[0].isspace():
            self._telling.pop(source, None)
        return LogLine(text, source, rank, None, collected)

    def _entry(self, entry: re.Match[str], source: str, collected: datetime | None) -> LogLine:
        rank = self._speakers[source] = entry[3].strip()
        if entry[4].endswith("Traceback (most recent call last):"):
            self._telling[source] = rank
        return LogLine(entry[4], source, rank, _time(entry[1], entry[2]), collected, is_entry=True)

    def _without_task(self, text: str, entry: re.Match[str] | None) -> tuple[str, str]:
        head = text[: entry.start()] if entry else ""
        if head and len(self._tasks) < _MOST_TASKS and (named := _TASK.fullmatch(head)):
            self._tasks.setdefault(head, next(filter(None, named.groups())))
        begun = next((begin for begin in self._tasks if text.startswith(begin)), "")
        return text[len(begun) :], self._tasks.get(begun, "")


def _uncollected(text: str) -> tuple[str, str, datetime | None]:
    """Return a line without its collector's prefix, its source, and the time when it was collected."""
    source, collected = "", None
    if text.startswith('{"log":'):
        text, collected = _docker_json(text)
    if pod := _POD.match(text) or _RAY.match(text) or _SERVICE.match(text):
        source, text = pod[1], text[pod.end() :]
    if stamp := _STAMP.match(text):
        collected, text = _time(stamp[1], stamp[2], stamp[3]), text[stamp.end() :]
        if not source and (pod := _POD.match(text)):
            source, text = pod[1], text[pod.end() :]
        if stream := _STREAM.match(text):
            text = text[stream.end() :]
    if (journal := _JOURNAL.match(text)) and (journal[1] or stamp):
        source, text = journal[2], text[journal.end() :]
    return text, source, collected


def _docker_json(text: str) -> tuple[str, datetime | None]:
    try:
        line = json.loads(text)
        log, stamp = line["log"], _STAMP.match(f"{line.get('time')} ")
    except (ValueError, KeyError, RecursionError):
        return text, None
    if not isinstance(log, str):
        return text, None
    return _COLOURS.sub("", log).rstrip("\r\n"), _time(*stamp.groups()) if stamp else None


@lru_cache(maxsize=64)
def _time(second: str, fraction: str | None, zone: str | None = None) -> datetime | None:
    """Return a time, or None if the text is no valid time."""
    try:
        time = datetime.fromisoformat((second if second[4] == "-" else f"2000-{second}").replace("T", " "))
        if zone is not None:
            time = time.replace(tzinfo=_zone(zone))
    except (ValueError, OverflowError):
        return None
    return time.replace(microsecond=int((fraction or "0").ljust(6, "0")[:6]))


def _zone(text: str) -> timezone:
    if text == "Z":
        return timezone.utc
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))
