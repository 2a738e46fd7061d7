"""How servers die: a line of a log and the calls above it become a death, by the rows of ends.toml. Other
lines become findings: settings that slow the server down, and failed requests."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from runtime.devices.readings import OutOfMemory, parse_out_of_memory, torch_numbers
from runtime.server.nearest import meant
from runtime.toml import tomllib
from sgl_tune.log_lines import LogLine
from sgl_tune.units import count

# If a log shows several deaths, the one of the lowest level is the cause of the others.
LEVELS = ("memory", "refused", "cause", "exception", "follows", "notice")
MEMORY, REFUSED, CAUSE, EXCEPTION, FOLLOWS, NOTICE = range(6)
_CONFIG = re.compile(
    r"Config file not found at (?P<path>.{1,600}?\.json)(\. Fallback to \w+ version (?P<older>[\d.]{1,9}\d))?"
)
_TRANSFER = re.compile(
    r"(?:Prefill|Decode) (?:transfer|bootstrap|handshake) failed for request .{0,400}? with exception "
    r"(?P<why>.{1,300})"
)
_SPARED = {"Triton MoE config": "; `sgl-tune warm` tunes it"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of death: a row of ends.toml, which explains the fields."""

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
    the message has none. `others_bytes`: others' GPU memory, if torch shows this process's share."""

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
    gpu: str = ""

    @property
    def where(self) -> str:
        """Return the innermost frame outside torch and Python's own modules. A package is one name."""
        frame = next((frame for frame in reversed(self.frames) if not _NOT_SGLANGS.search(frame.file)), None)
        name = frame.file.removesuffix("/__init__.py").rsplit("/", 1)[-1] if frame else ""
        return f"{name}:{frame.line} in {frame.function}" if frame else ""


def _kinds(rows: Iterable[dict[str, Any]], field: str) -> tuple[Kind, ...]:
    """Return the rows that have `field`, which is a list of regular expressions."""
    return tuple(
        Kind(words=re.compile("|".join(row.pop(field))), level=LEVELS.index(row.pop("level")), **row)
        for row in rows
        if field in row
    )


_TABLE = tomllib.loads(Path(__file__).with_name("ends.toml").read_text("utf-8"))
KINDS, _BY_CALL = _kinds(_TABLE["kind"], "words"), _kinds(_TABLE["kind"], "frames")
_SHOWN = tuple((re.compile("|".join(row["words"])), row["name"]) for row in _TABLE["phase"])
_NOT_SGLANGS = re.compile(r"/torch/|/lib/python3[.\d]*/(?!(?:site|dist)-packages)")
EITHER_GRAPHS, NO_SERVER = "decode or draft graphs", "no server"
# Printed by the server's own process, by C or by a shell: the rank that logged last is not the one that died.
_OF_NO_RANK = frozenset(("killed", "crash", "port in use", "arguments", "ended", "NCCL", "compiler"))
_HINTS = tuple(_TABLE["hints"])
_OF_PYTHON = re.compile(r"[A-Za-z_][\w.]{0,150}(?:Error|Exception)\b")
_CLASS = re.compile(r"[a-z_]\w*\.[\w.]{0,120}(?<=\.)[A-Z]\w{1,60}(?:: |$)")  # in a traceback's last line
_BEFORE_GRAPHS = ("communicator", "weights", "draft weights", "kv pool", "attention backend")
_BLANKS = re.compile(r"\s{8,}")  # where a terminal or a page broke the line
_TORCHS = re.compile(r"[KMG]iB|bytes|PyTorch|allocat|capacity|GPU|memory")  # words of its message
_GPU = re.compile(r"Tried\s+to\s+allocate\s+[\d.]+\s*\w+\.?\s+\(?GPU\s+(\d{1,4})\b")
FRAME = re.compile(r'^ {0,8}(?:File )?"?([^"\s,]{1,400}\.py)"?, line (\d{1,7}), in (\S{1,100})')


def kind_of(text: str, is_entry: bool) -> Kind | None:
    """Return the death that a line shows. A log entry cannot be the last line of a traceback."""
    text = text[:2000]
    if not any(hint in text for hint in _HINTS) and not _CLASS.match(text):
        return None
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
    forms = [text] if "        " not in text else [_BLANKS.sub(with_, text) for with_ in (" ", "")]
    kind = next(filter(None, (kind_of(form, line.is_entry) for form in forms)), None)
    if kind is None:
        return None
    calls = " ".join(f"{frame.file} {frame.function}" for frame in reversed(frames))
    numbers = others = gpu = None
    if kind.level == MEMORY:
        numbers, others, gpu = parse_out_of_memory(text), _held_by_others(text), _GPU.search(text)
        phase = "autotune" if any("autotune" in frame.function for frame in frames) else phase
    elif kind.level == REFUSED and (found := kind.words.search(text)):
        text = text[found.start() : found.start() + 400]
    elif kind.level == EXCEPTION:
        kind = next((by for by in _BY_CALL if by.words.search(f"{calls} {text}")), kind)
        if re.fullmatch(r"\w+(?:Error|Exception):?\s*", text) and frames and frames[-1].code:
            text = f"{text.strip()}: {frames[-1].code}"  # an assertion without a message
    is_raw = kind.level > REFUSED and not frames and not _OF_PYTHON.match(text)
    rank = "" if not line.is_entry and (is_raw or kind.name in _OF_NO_RANK) else rank
    is_open = phase in ("setup", "kv pool") or (kind.level == MEMORY and phase in _BEFORE_GRAPHS)
    shown = next((shown for words, shown in _SHOWN if is_open and words.search(f"{calls} {text}")), phase)
    is_told = phase == "setup" or shown.endswith(" graphs") or (phase, shown) == ("kv pool", "weights")
    phase = shown if is_told else phase
    text = _BLANKS.sub(" ", text).strip()[:1000]
    if kind.name == "arguments":
        near = (meant(word.partition("=")[0], flags) for word in text.split() if word.startswith("--"))
        text += "".join(f" ({one})" for one in near if one)
    on = gpu[1] if gpu else ""
    return Death(kind, text, line.source, rank, number, phase, at, tuple(frames), numbers, others, on)


def _held_by_others(message: str) -> int | None:
    read = torch_numbers(message)
    is_shown = {"total", "free", "process"} <= read.keys()
    return max(0, read["total"] - read["free"] - read["process"]) if is_shown else None


def continued(death: Death, text: str) -> Death | None:
    """Return the death whose message goes on in the next line. None if the message is complete."""
    whole = re.sub(r"\s", "", death.text)
    is_open = death.kind.level == MEMORY and re.search(r"outofmemory\.(?:Tried|$)", whole)
    if not is_open or "unallocated" in whole or not _TORCHS.search(text) or "out of memory" in text:
        return None
    more = f"{death.text} {text}"[:1000]
    numbers, gpu = parse_out_of_memory(more) or death.numbers, _GPU.search(more)
    on, others = gpu[1] if gpu else "", _held_by_others(more)
    return replace(death, text=more, numbers=numbers, others_bytes=others, gpu=on)


class Finding(NamedTuple):
    """A finding in a log. `file`: the file that SGLang looked for; "" for other kinds."""

    kind: str
    text: str
    file: str = ""

    def line(self, times: int) -> str:
        if self.kind == "kv transfer":
            return f"{count(times, 'transfer')} of KV cache failed between prefill and decode: {self.text}"
        if self.kind == "health check":
            return f"{count(times, 'health check')} failed: {self.text}"
        file = f"no tuned file {self.file.rpartition('/')[2]}: " if self.file else ""
        return f"{file}{self.text}{_SPARED.get(self.kind, '')}"

    def to_json(self, times: int) -> dict[str, object]:
        return {"kind": self.kind, "text": self.line(times), "file": self.file or None, "count": times}


def finding_of(text: str, before: str) -> Finding | None:
    if "Config file not found at" in text and (found := _CONFIG.search(text)):
        kind = "Triton FP8 config" if "W8A8" in text else "Triton MoE config"
        return Finding(kind, _instead(text, found["older"]), found["path"])
    if "failed for request" in text and (found := _TRANSFER.search(text)):
        return Finding("kv transfer", re.sub(r"\(bootstrap_room=\d+\)", "", found["why"]))
    if text.startswith("Health check failed. "):
        return Finding("health check", "the scheduler or the detokenizer gave no answer in time")
    if " NCCL WARN " in text or before == "Last error:":
        return Finding("NCCL", f"NCCL: {text.rpartition(' NCCL WARN ')[2].strip()[:300]}")
    return None


def _instead(text: str, older: str | None) -> str:
    if older:
        return f"SGLang uses the file for Triton {older}, which may be slower"
    if "down_moe=False" in text:
        return "SGLang uses the file of the first expert GEMM for the second one too, which may be slower"
    return "SGLang uses its untuned default, which may be slower"
