"""FlashInfer's managed store: one entry a file, where nearly all that is wrong is a miss and no crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.server.flashinfer import FlashInfer, flashinfer_of
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.loader import Loaded, restore_tactic
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file
from sgl_tune.verify.entries import check_entries
from sgl_tune.verify.environment import Target, looking_up
from sgl_tune.verify.findings import FileReport, Finding, Verdict, VerifyReport, finding

_SCHEMA = {"cache_schema": "v2"}
_REMEDY = "delete it: the server measures and writes it again"
# FlashInfer takes what it cannot parse for a miss, but unpacks the tactic outside of that care.
_TOO_DEEP = finding("nested-too-deep", "its tactic kills the lookup with RecursionError", _REMEDY)


def verify_managed(cache: Cache, target: Target) -> VerifyReport:
    manifest = _read_object(cache.manifest, cache.root) if cache.manifest else None
    elsewhere = _elsewhere(cache, manifest, target)
    reader = flashinfer_of(looking_up(manifest, target))
    reports = [_verify_entry(cache, file.path, bool(elsewhere), reader) for file in cache.files]
    return VerifyReport(tuple(reports), tuple(elsewhere))


def _elsewhere(cache: Cache, manifest: dict[str, Any] | None, target: Target) -> list[Finding]:
    """A store's folder is named after its environment, and a server computes that name from its own."""
    if manifest is None:
        message = "its manifest.json cannot be read, so for which server it is is unknown"
        remedy = "nothing to do: FlashInfer reads the entries without it"
        return [finding("manifest-broken", message, remedy, where=cache.path)]
    wanted = {**manifest, **(target.metadata or {}), **_SCHEMA}
    folder = _folder_name(wanted)
    if folder == cache.key:
        return []
    changed = [
        f"{name}: store {manifest.get(name)}, server {value}"
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


def _verify_entry(cache: Cache, path: Path, elsewhere: bool, reader: FlashInfer) -> FileReport:
    try:
        document = parse_cache_file(path, read_below(path, cache.root)).document
        key, runner, tactic = document["key"], document["runner"], restore_tactic(document["tactic"])
    except OSError as error:
        return _miss(path, f"it cannot be read ({error.strerror})")
    except RecursionError:
        return FileReport(path, Verdict.IGNORED if elsewhere else Verdict.CRASH, (_TOO_DEEP,))
    except BrokenCacheFile as error:
        return _miss(path, error.what)
    except KeyError as error:
        return _miss(path, f"it has no member {error}")
    if not isinstance(key, str) or sha256(key.encode(errors="replace")).hexdigest()[:24] != path.stem:
        return _miss(path, "its name is not the hash of its key")
    policy = document.get("profiling_policy")
    policies = {key: tuple(policy) if isinstance(policy, list) else ()}
    loaded = Loaded({key: (runner, tactic)}, policies, ())
    found = check_entries({key: [runner, tactic]}, loaded, reader)
    verdict = Verdict.PARTIAL if found else Verdict.HIT
    return FileReport(path, Verdict.IGNORED if elsewhere else verdict, tuple(found))


def _miss(path: Path, why: str) -> FileReport:
    return FileReport(path, Verdict.IGNORED, (finding("managed-entry-invalid", f"{why}: a miss", _REMEDY),))
