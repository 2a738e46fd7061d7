"""Judge FlashInfer's managed store: one entry per file. Nearly every fault is a miss, not a crash."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import doubt_of, flashinfer_of
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.loader import Loaded, restore_tactic
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file
from sgl_tune.verify.entries import check_entries, cut
from sgl_tune.verify.environment import Target, looking_up
from sgl_tune.verify.findings import FileReport, Finding, Verdict, VerifyReport, finding
from sgl_tune.verify.mismatches import unsaid_finding

_RECORD = "('__protocol__',"
# A text as repr writes it, which literal_eval reads without warnings about odd escapes.
_ESCAPE = r"""\\(?:[\\'nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_TEXT = rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*\""""
_RECORD_KEY = re.compile(rf"\('__protocol__', ({_TEXT}), ({_TEXT})\)")
_SCHEMA = {"cache_schema": "v2"}
# An entry that FlashInfer cannot parse is a miss, but it unpacks the tactic outside of that `try`.
_TOO_DEEP = finding("nested-too-deep", "its tactic kills the lookup with RecursionError")


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
    folder = _folder_name(wanted)
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


def _folder_name(manifest: Mapping[str, Any]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()[:16]


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
