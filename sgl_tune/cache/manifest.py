"""`sgl-tune.json`, beside the rank files: the deployment they were tuned for, where and when."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runtime.record.checked import WrongMember, from_plain
from sgl_tune.cache.folder import read_below
from sgl_tune.errors import CheckFailed
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.units import shown

SCHEMA_VERSION = 1


class BrokenManifest(CheckFailed):
    """A manifest is unreadable, or not as sgl-tune writes it. The caches themselves may be fine."""


@dataclass(frozen=True)
class Manifest:
    """A manifest. `files`: the sha256 of each file as we wrote it; a server that tunes on changes the
    file. `measured`: for each entry's key, the times of the winner's and the default's kernel in
    milliseconds, how much slower the second was in the final, and the number of launches. `races`: for
    each key, how much slower each tactic of the final was, by runner and tactic, the winner included.
    `routings`: the routings of tokens to experts with which MoE layers were measured."""

    environment: Mapping[str, str]
    key_parts: tuple[str, ...] = ()
    deployment: Mapping[str, Any] = field(default_factory=dict)
    sglang: str | None = None
    driver: str | None = None
    seconds: float | None = None
    notes: str | None = None
    tool: str | None = None
    created: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    races: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    routings: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        content = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(content, indent=2).encode() + b"\n"


def read_manifest(path: Path, root: Path | None = None) -> Manifest:
    try:
        raw = read_below(path, root)
    except OSError as error:
        raise BrokenManifest(f"{path}: {error.strerror}", "`sgl-tune warm` writes a new one") from None
    return parse_manifest(path, raw)


def parse_manifest(path: Path, raw: bytes) -> Manifest:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise _broken(path, "it is not JSON") from None
    if not isinstance(content, dict) or is_deeper(content, DEEPEST):
        raise _broken(path, "it is not a JSON object, or a bottomless one")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise _broken(path, f"schema_version is {shown(content.get('schema_version'))}, not {SCHEMA_VERSION}")
    try:
        return from_plain(Manifest, content, "manifest")
    except WrongMember as error:
        raise _broken(path, str(error)) from None


def _broken(path: Path, what: str) -> BrokenManifest:
    return BrokenManifest(f"{path}: not a manifest of sgl-tune: {what}", "delete it; the caches work without")
