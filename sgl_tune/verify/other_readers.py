"""Judge the files of other readers. FlashInfer's managed store has one entry per file; nearly every fault is
a miss, not a crash. vLLM has one file per rank; before a rank loads its file, all ranks exchange what
theirs are like. From vLLM 0.33's `kernel_warmup.py` and `flashinfer_autotune_cache.py`."""

import ast
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import FlashInfer, doubt_of, flashinfer_of
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.loader import Loaded, Save, next_save, restore_tactic
from sgl_tune.cache.rank_names import LARGEST_GROUP, VllmRank, names_text, width_of
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file
from sgl_tune.cache.scan import vllm_fingerprint
from sgl_tune.units import count, some
from sgl_tune.verify.entries import check_entries, cut
from sgl_tune.verify.environment import Target, looking_up, unsaid_finding
from sgl_tune.verify.findings import CODES, FileReport, Finding, Verdict, VerifyReport, finding

_RECORD = "('__protocol__',"
# A text as repr writes it, which literal_eval reads without warnings about odd escapes.
_ESCAPE = r"""\\(?:[\\'nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_TEXT = rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*\""""
_RECORD_KEY = re.compile(rf"\('__protocol__', ({_TEXT}), ({_TEXT})\)")
_SCHEMA = {"cache_schema": "v2"}
# An entry that FlashInfer cannot parse is a miss, but it unpacks the tactic outside of that `try`.
_TOO_DEEP = finding("nested-too-deep", "its tactic kills the lookup with RecursionError")
_ANEW = CODES["vllm-ranks-differ"].remedy


def verify_managed(cache: Cache, target: Target) -> VerifyReport:
    manifest = _read_object(cache.manifest, cache.root) if cache.manifest else None
    elsewhere = _elsewhere(cache, manifest, target)
    unsaid = () if elsewhere else target.unsaid(manifest)
    version = looking_up(manifest, target)
    reports = []
    for file in cache.files:
        report = _verify_entry(cache, file.path, version)
        if elsewhere:
            report = report._replace(verdict=Verdict.IGNORED)
        elif unsaid and report.verdict in (Verdict.HIT, Verdict.PARTIAL):
            report = report._replace(verdict=Verdict.UNKNOWN)
        reports.append(report)
    silent = [unsaid_finding(unsaid, target)._replace(where=str(cache.path))] if unsaid else []
    return VerifyReport(tuple(reports), (*elsewhere, *silent))


def _elsewhere(cache: Cache, manifest: dict[str, Any] | None, target: Target) -> list[Finding]:
    """Report a store for another server. A folder's name is computed from the environment of its server."""
    if manifest is None:
        message = "its manifest.json cannot be read, so for which server it is is unknown"
        remedy = "nothing to do: FlashInfer reads the entries without it"
        return [finding("manifest-broken", message, remedy, where=cache.path)]
    wanted = {**manifest, **target.for_file(manifest), **_SCHEMA}
    canonical = json.dumps(wanted, sort_keys=True, separators=(",", ":"))
    folder = sha256(canonical.encode()).hexdigest()[:16]
    if folder == cache.key:
        return []
    changed = [
        f"{name}: store {cut(str(manifest.get(name)))}, server {cut(str(value))}"
        for name, value in wanted.items()
        if manifest.get(name) != value
    ]
    why = ", ".join(changed) or "this folder was renamed"
    message = f"the server looks in {folder} ({why})"
    remedy = "nothing to do: the server makes its own store beside this one"
    return [finding("other-folder", message, remedy, where=cache.path)]


def _read_object(path: Path, root: Path | None) -> dict[str, Any] | None:
    try:
        return parse_cache_file(path, read_below(path, root)).document
    except (OSError, BrokenCacheFile):
        return None


def _verify_entry(cache: Cache, path: Path, version: str) -> FileReport:
    try:
        document = parse_cache_file(path, read_below(path, cache.root)).document
        key, runner, tactic = document["key"], document["runner"], document["tactic"]
        is_record = isinstance(key, str) and key.startswith(_RECORD)
        tactic = copy.deepcopy(tactic) if is_record else restore_tactic(tactic)
    except OSError as error:
        return _miss(path, f"it cannot be read ({error.strerror})")
    except RecursionError:
        return FileReport(path, Verdict.CRASH, (_TOO_DEEP,))
    except BrokenCacheFile as error:
        return _miss(path, error.what)
    except KeyError as error:
        return _miss(path, f"it has no member {error}")
    if not isinstance(key, str) or sha256(key.encode(errors="replace")).hexdigest()[:24] != path.stem:
        return _miss(path, "its name is not the hash of its key")
    if is_record and _namespace(key) != runner:
        return _miss(path, "its runner is not the namespace in its key")
    if is_record:
        return FileReport(path, Verdict.HIT)
    policy = document.get("profiling_policy")
    policies = {key: tuple(policy) if isinstance(policy, list) else ()}
    loaded = Loaded({key: (runner, tactic)}, policies, ())
    is_known = doubt_of(version) is None
    found = check_entries({key: [runner, tactic]}, loaded, flashinfer_of(version), is_known)
    return FileReport(path, Verdict.PARTIAL if found else Verdict.HIT, tuple(found))


def _namespace(key: str) -> str | None:
    """Return the namespace in a record's key, str(("__protocol__", namespace, name)), or None. Ops that
    tune themselves keep records since 0.7.4, and accept only those whose runner is their namespace."""
    found = _RECORD_KEY.fullmatch(key)
    try:
        namespace, name = map(ast.literal_eval, found.groups()) if found else ("", "")
    except (SyntaxError, ValueError):
        return None
    return namespace if namespace and str(("__protocol__", namespace, name)) == key else None


def _miss(path: Path, why: str) -> FileReport:
    return FileReport(path, Verdict.IGNORED, (finding("managed-entry-invalid", f"{why}: a miss"),))


def looks_before_loading(names: Sequence[str]) -> bool:
    """Whether these are files of a vLLM release that reads a rank's file before FlashInfer loads it."""
    return any(VllmRank.parse(name) for name in names)


def broken_before_loading(
    error: BrokenCacheFile, raw: bytes, target: Mapping[str, str], reader: FlashInfer
) -> tuple[Verdict, str] | None:
    """Return what vLLM does with a file that crashes FlashInfer's loader; None if vLLM crashes too."""
    if error.exception in ("TypeError", "RecursionError"):
        return None
    saved = next_save(raw, target, reader)
    if isinstance(saved, Save):
        return Verdict.REPLACED, f"{error.what}: vLLM takes it for none, so all ranks tune, and replaces it"
    return Verdict.CRASH, f"{error.what}: vLLM tunes, and dies with {saved.exception} when it saves"


def settle_vllm(folder: Path, reader: FlashInfer, reports: dict[str, FileReport]) -> Iterator[Finding]:
    """Judge a folder's files, and add the ranks that lack a file to the reports."""
    ranks = {rank: name for name in reports if (rank := VllmRank.parse(name))}
    if not ranks:
        return
    for absent in _holes(list(ranks)):
        message = "there is no such file, so no rank of its group loads one: all of them tune"
        report = FileReport(folder / absent, Verdict.MISSING, (finding("rank-missing", message, _ANEW),))
        reports[absent] = report
    alike: dict[tuple[str, int] | None, list[str]] = {}
    for name in ranks.values():
        alike.setdefault(_told(name, reports), []).append(name)
    if len(alike) > 1:
        kinds = [
            f"{names_text(names)} {count(mark[1], 'member') if mark else 'unreadable'}"
            for mark, names in alike.items()
        ]
        message = (
            f"vLLM loads them only if all ranks report the same environment and size: {some(kinds)};"
            " ranks of several pipeline stages are compared a stage each, otherwise all of them tune"
        )
        yield finding("vllm-ranks-differ", message, where=folder)
    if ranks.keys() == {VllmRank(0, 0)} and reader.has_v2:
        message = "a vLLM server of one rank (0.33) reads FlashInfer's managed store and not this file"
        yield finding("vllm-one-rank", message, where=folder)


def _told(name: str, reports: dict[str, FileReport]) -> tuple[str, int] | None:
    file = reports[name].file
    if file is None:
        return None
    try:
        return vllm_fingerprint(file.document)
    except RecursionError:
        message = "nested too deep: vLLM dies with RecursionError before it loads it"
        found = (finding("nested-too-deep", message, _ANEW),)
        reports[name] = reports[name]._replace(verdict=Verdict.CRASH, findings=found)
        return None


def _holes(ranks: Sequence[VllmRank]) -> Iterator[str]:
    """Yield the missing files below the largest rank, if the other names show a replica's number of ranks."""
    known = {rank.rank: rank.dp for rank in ranks}
    largest = max(known)
    if largest >= LARGEST_GROUP:
        return
    if width := width_of(known):
        yield from (VllmRank(rank // width, rank).filename for rank in range(largest) if rank not in known)
