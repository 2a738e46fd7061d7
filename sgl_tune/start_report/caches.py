"""Which tactics a start used, as far as its log tells: which files, how many entries, what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sgl_tune.start_report.told import Told, facts
from sgl_tune.units import count

SILENCED = "SGLang's server silences FlashInfer's lines"


@dataclass(frozen=True, slots=True)
class CacheFile:
    """`entries` is None where the log does not say that it was loaded."""

    path: str
    loaded: bool | None
    entries: int | None = None
    new_entries: int | None = None
    why_not: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tactics:
    """`hit` is None where the log does not tell whether anything was measured."""

    files: tuple[CacheFile, ...]
    profiled: dict[str, int]
    hit: bool | None
    cause: str


def tactics_of(told: Told) -> Tactics | None:
    """None where the log speaks of no tuner."""
    files = _files(told)
    if not files and not told.bars.profiled and not any(e.mark.phase == "tactics" for e in told.events):
        return None
    hit = _hit(told, files)
    return Tactics(tuple(files.values()), dict(told.bars.profiled), hit, "; ".join(_cause(told, files, hit)))


def _files(told: Told) -> dict[str, CacheFile]:
    found: dict[str, CacheFile] = {}
    differ: str | None = None
    for event in told.events:
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
            found[path] = CacheFile(
                path, before.loaded, before.entries, int(event.said["new"]), before.why_not
            )
    return found


def _hit(told: Told, files: dict[str, CacheFile]) -> bool | None:
    new = [file.new_entries for file in files.values() if file.new_entries is not None]
    if sum(told.bars.profiled.values()) or any(new) or told.measured:
        return False
    if told.measured == 0 or told.bars.count:  # bars of other work are there, so the tuner's would be
        return True
    loaded = any(file.loaded for file in files.values())
    return True if loaded and _was_completed(told) and not new else None


def _was_completed(told: Told) -> bool:
    return any(e.mark.phase == "tactics" and e.mark.edge == "closes" for e in told.events)


def _cause(told: Told, files: dict[str, CacheFile], hit: bool | None) -> list[str]:
    said = []
    for file in files.values():
        if file.why_not and not any(facts(told, "disagree")):
            said.append(f"{file.path} is of a different environment: {file.why_not}")
    loaded = [file for file in files.values() if file.loaded]
    if loaded:
        entries = sum(file.entries or 0 for file in loaded)
        said.append(f"{count(entries, 'entry')} loaded from {count(len(loaded), 'file')}")
    if any(facts(told, "no reuse")):
        said.append("SGLANG_FLASHINFER_AUTOTUNE_CACHE=0: no file is read")
    if any(facts(told, "disagree")):
        said.append("the ranks' files differ, so all were dropped")
    if told.measured is not None:
        said.append(f"{count(told.measured, 'measurement')}")
    if told.bars.profiled:
        ops = ", ".join(f"{op} {number}" for op, number in told.bars.profiled.items())
        said.append(f"profiles measured: {ops}")
    elif hit and told.measured is None:
        said.append("nothing was measured")
    elif hit is None:
        said.append(f"whether anything was measured is not told: {SILENCED}, and no progress bar is here")
    if not loaded and hit is not None and not said[:-1]:
        said.append(f"which file was loaded is not told: {SILENCED}")
    return said
