"""The tactics that a start used, as far as its log shows: files, entries, and what was measured."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sgl_tune.server_log.marks import Edge
from sgl_tune.server_log.start import Start
from sgl_tune.units import count


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A rank file of tactics. `loaded`, `entries`: None if the log does not show them."""

    path: str
    loaded: bool | None
    entries: int | None = None
    new_entries: int | None = None
    why_not: str | None = None

    def line(self) -> str:
        if self.loaded:
            return f"tactics: {count(self.entries or 0, 'entry')} loaded from {self.path}"
        if self.loaded is False:
            return f"tactics: none loaded from {self.path}{f': {self.why_not}' if self.why_not else ''}"
        return f"tactics: SGLang used {self.path}; the log does not show what was loaded from it"


@dataclass(frozen=True, slots=True)
class Tactics:
    """What a start did about tactics. `hit`: None if the log does not show whether it measured any."""

    files: tuple[CacheFile, ...]
    hit: bool | None
    cause: str


def tactics_of(start: Start) -> Tactics | None:
    """Return the tactics, or None if the log shows no tuner."""
    files = _files(start)
    if not files and not start.bars.profiled and not any(e.phase == "tactics" for e in start.events):
        return None
    hit = _hit(start, files)
    return Tactics(tuple(files.values()), hit, "; ".join(_cause(start, hit)))


def _files(start: Start) -> dict[str, CacheFile]:
    found: dict[str, CacheFile] = {}
    differ: str | None = None
    for event in start.events:
        path, fact = event.said.get("path") or "", event.mark.fact
        if fact == "disagree":
            differ = "the ranks' files differ"
        elif fact in ("cache", "no reuse"):
            is_read = None if differ is None and fact == "cache" else False
            found.setdefault(path, CacheFile(path, is_read, why_not=differ))
            differ = None
        elif fact == "loaded file":
            found[path] = CacheFile(path, True, int(event.said["count"]))
        elif fact == "foreign file":
            found[path] = CacheFile(path, False, why_not=event.said["why"])
        elif fact == "saved file":
            before = found.get(path) or CacheFile(path, None)
            found[path] = replace(before, new_entries=int(event.said["new"]))
    return found


def _hit(start: Start, files: dict[str, CacheFile]) -> bool | None:
    new = [file.new_entries for file in files.values() if file.new_entries is not None]
    if sum(start.bars.profiled.values()) or any(new):
        return False
    if start.bars.count:  # other bars are shown, so the tuner's would be
        return True
    ended = any(event.phase == "tactics" and event.mark.edge is Edge.closes for event in start.events)
    return True if any(file.loaded for file in files.values()) and ended and not new else None


def _cause(start: Start, hit: bool | None) -> Iterator[str]:
    if any(start.facts("no reuse")):
        yield "SGLANG_FLASHINFER_AUTOTUNE_CACHE=0: no file is read"
    if start.bars.profiled:
        yield f"profiles measured: {', '.join(f'{op} {n}' for op, n in start.bars.profiled.items())}"
    elif hit:
        yield "nothing was measured"
    elif hit is None:
        yield "the log shows neither a progress bar nor which files were loaded: SGLang silences FlashInfer"
