"""Judge one file's content for one server. Equal contents of a group are judged once."""

import json
from collections import deque
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import GENERATION, FlashInfer, doubt_of
from sgl_tune.cache.loader import Ignored, Loaded, Raised, Save, load_document, next_save
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_cache_file
from sgl_tune.verify.entries import Coverage, check_entries, cut
from sgl_tune.verify.environment import Target, ignored_finding, looking_up, own_environment, unsaid_finding
from sgl_tune.verify.expected import Expected
from sgl_tune.verify.findings import CODES, FileReport, Finding, Verdict, finding
from sgl_tune.verify.other_readers import broken_before_loading

_RECENT = 8  # contents of a cache's stages; searching more takes longer than parsing
_BROKEN_CODES = {
    "UnicodeDecodeError": "not-text",
    "JSONDecodeError": "not-json",
    "TypeError": "not-an-object",
    "AttributeError": "not-an-object",
    "ValueError": "number-too-long",
    "RecursionError": "nested-too-deep",
}


class Judge:
    """Judges files for one server: its environment, and its deployment's lookups (None: not known)."""

    def __init__(
        self, target: Target, wants: Expected | None = None, looks_before_loading: bool = False
    ) -> None:
        self.target, self.wants, self._looks_first = target, wants, looks_before_loading
        self._coverage = Coverage(wants) if wants and wants.ops else None
        self._recent: deque[tuple[bytes, FileReport]] = deque(maxlen=_RECENT)

    def judge(self, path: Path, raw: bytes) -> FileReport:
        for known, judged in self._recent:
            if known == raw:
                return judged._replace(path=path)
        try:
            judged = self._judge_parsed(parse_cache_file(path, raw))
        except BrokenCacheFile as error:
            judged = self._judge_broken(error, raw)
        self._recent.appendleft((raw, judged))
        return judged

    def _judge_parsed(self, file: CacheFile) -> FileReport:
        saved = file.metadata
        reader = self.target.reader(saved)
        outcome = load_document(file.document, self.target.for_file(saved), reader)
        if isinstance(outcome, Raised):
            found = (_killing(outcome), *_checksum(file, reader))
            return FileReport(file.path, Verdict.CRASH, found, file=file)
        if isinstance(outcome, Ignored):
            verdict = Verdict.IGNORED if outcome.hard else Verdict.REPLACED
            found = (ignored_finding(outcome), *_crash_elsewhere(file), *_checksum(file, reader))
            return FileReport(file.path, verdict, found, file=file)
        return self._judge_loaded(file, outcome, reader)

    def _judge_broken(self, error: BrokenCacheFile, raw: bytes) -> FileReport:
        told = f"{error.what}: the server dies with {error.exception}"
        usual = finding(_BROKEN_CODES[error.exception], told)
        if self._looks_first:
            target, reader = self.target.for_file(None), self.target.reader(None)
            if judged := broken_before_loading(error, raw, target, reader):
                return FileReport(error.path, judged[0], (usual._replace(message=judged[1]),))
        return FileReport(error.path, Verdict.CRASH, (usual,))

    def _judge_loaded(self, file: CacheFile, loaded: Loaded, reader: FlashInfer) -> FileReport:
        found: list[Finding] = []
        if file.metadata is None:
            message = "it does not say where it was tuned, so any server loads it unchecked"
            found.append(finding("no-environment", message))
        is_known = doubt_of(looking_up(file.metadata, self.target)) is None
        entries = file.entries_for(reader)
        found += check_entries(entries, loaded, reader, is_known)
        decisive = found
        if self._coverage:  # entries without a lookup decide nothing
            missing, keys = self._coverage.findings(loaded, reader), self._coverage.keys & entries.keys()
            decisive = [*missing, *check_entries({key: entries[key] for key in keys}, loaded, reader)]
            found += missing
        verdict = Verdict.PARTIAL if any(CODES[one.code].in_part for one in decisive) else Verdict.HIT
        asked = [key for key in loaded.entries if not self._coverage or key in self._coverage.keys]
        killing = [key for key in asked if isinstance(loaded.entries[key][0], (list, dict))]
        if killing and not reader.matches_runners:  # FlashInfer before 0.6.16 puts any runner into a set
            verdict = Verdict.CRASH
            found.append(_killing(Raised("TypeError", "unhashable", killing[0])))
        checksum = _checksum(file, reader)
        if checksum or GENERATION not in reader.members:  # otherwise FlashInfer has saved it before
            killed = _killed_save(file, self.target, reader)
            verdict = Verdict.CRASH if killed else verdict
            checksum = [*killed, *checksum]
        if unsaid := self.target.unsaid(file.metadata):
            found.insert(0, unsaid_finding(unsaid, self.target))
            verdict = verdict if verdict is Verdict.CRASH else Verdict.UNKNOWN
        return FileReport(file.path, verdict, (*found, *checksum), file=file)


def _killing(outcome: Raised) -> Finding:
    if outcome.key is not None:
        what = f"the entry {cut(outcome.key, 90)!r} cannot be read: the server dies with {outcome.exception}"
        return finding("entry-kills-loader", what)
    if outcome.exception == "RecursionError":
        return finding("nested-too-deep", "nested too deep: the server dies with RecursionError")
    is_metadata = outcome.exception == "AttributeError"
    code = "metadata-not-an-object" if is_metadata else "records-not-an-object"
    return finding(code, f"{outcome.reason}: the server dies with {outcome.exception}")


def _crash_elsewhere(file: CacheFile) -> list[Finding]:
    writer = Target(None, "").reader(file.metadata)
    outcome = load_document(file.document, own_environment(file.metadata, writer), writer)
    if not isinstance(outcome, Raised):
        return []
    why = _killing(outcome).message
    return [finding("crash-elsewhere", f"ignored by this server, but where it was tuned: {why}")]


def _killed_save(file: CacheFile, target: Target, reader: FlashInfer) -> list[Finding]:
    outcome = next_save(file.raw, target.for_file(file.metadata), reader)
    if isinstance(outcome, Save):
        return []
    message = f"it loads, but the server dies with {outcome.exception} when it saves"
    return [finding("nested-too-deep", message)]


def _checksum(file: CacheFile, reader: FlashInfer) -> list[Finding]:
    has_checksum = GENERATION in reader.members
    saved = file.generation
    if has_checksum and saved is not None and saved == file.computed_generation:
        return []
    found = [
        finding("duplicate-key", f"the key {cut(key, 90)!r} occurs more than once; the last one counts")
        for key in _duplicates(file.raw)[:1]
    ]
    if not has_checksum:
        return found
    if saved is None:
        message = f"it has no {GENERATION}: written by a FlashInfer before 0.6.18, or by hand"
        return [*found, finding("generation-missing", message)]
    message = f"{GENERATION} does not match the content: it was edited after it was written"
    return [*found, finding("generation-wrong", message)]


def _duplicates(raw: bytes) -> list[str]:
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, value in pairs:
            if name in table:
                found.append(name)
            table[name] = value
        return table

    try:
        json.loads(raw.decode(), object_pairs_hook=note)
    except RecursionError:  # the hook takes more stack than the first parse
        return []
    return found
