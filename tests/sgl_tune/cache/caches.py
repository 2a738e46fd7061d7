"""Cache folders on a temporary disk, as servers leave them."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from sgl_tune.cache.layouts.cache import LOCK
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.record import serialise
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Checked
from sgl_tune.verify.findings import VerifyReport
from sgl_tune.verify.verify import verify
from tests.sgl_tune.cache.corpus import TARGET, moe_entries, target_of

KEY = "8e60e63bda689ee5"
HERE = Target(TARGET, "the test", flashinfer="0.7.2", arch="sm90")


def cache_folder(root: Path, flashinfer: str = "0.7.2", arch: str = "sm90", key: str = KEY) -> Path:
    folder = root / "flashinfer" / "autotune" / flashinfer / arch / key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def good(metadata: dict[str, Any] | None = None, **entries: Any) -> bytes:
    return serialise(metadata or TARGET, {**moe_entries(), **entries})


def rank_names(tp: int = 1, pp: int = 1, dp_attention: bool = False) -> list[str]:
    return [f"rank_tp{t}_pp{p}_dp{t if dp_attention else 0}.json" for p in range(pp) for t in range(tp)]


def write_ranks(folder: Path, names: list[str], raw: bytes | None = None) -> list[Path]:
    for name in names:
        (folder / name).write_bytes(raw or good())
    return [folder / name for name in names]


def verify_all(root: Path, target: Target = HERE, sglang: str = "0.5.23", **server: Any) -> VerifyReport:
    return verify([Checked(cache, sglang) for cache in find_caches(root)], target, **server)


def verdicts(report: VerifyReport) -> list[str]:
    return [file.verdict.value for file in report.files]


def codes(report: VerifyReport) -> set[str]:
    return {found.code for found in report.all_findings()}


def managed_store(root: Path, environment: dict[str, str] | None = None) -> Path:
    """An empty one, by default of FlashInfer 0.7.4's: the folder is the hash of the manifest."""
    manifest = {**(environment or target_of("0.7.4")), "cache_schema": "v2"}
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    folder = root / "v2" / sha256(canonical.encode()).hexdigest()[:16]
    (folder / "entries").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def add_entry(folder: Path, key: str, runner: str, tactic: Any = 1, **members: Any) -> Path:
    path = folder / "entries" / f"{sha256(key.encode()).hexdigest()[:24]}.json"
    path.write_text(json.dumps({"key": key, "runner": runner, "tactic": tactic, **members}))
    return path


def files_of(root: Path) -> dict[str, bytes]:
    """What is below a folder, without locks."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != LOCK)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
