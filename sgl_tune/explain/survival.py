"""Whether the caches that are there serve another start: its files are judged as `verify` judges them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from runtime.server.cache_key import named_parts
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from sgl_tune.cache.layouts import Cache, find_caches
from sgl_tune.cache.scan import Scanner
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.units import count
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Expected, check
from sgl_tune.verify.findings import Severity, Verdict, VerifyReport
from sgl_tune.verify.verify import Server, verify

Fate = Literal["survives", "survives in part", "is tuned again", "is not needed", "is not there"]
_LOADED = (Verdict.HIT, Verdict.PARTIAL)


@dataclass(frozen=True, slots=True)
class Survival:
    """Of the target's cache, or the draft's. `files`: those there now; `loaded`: of `wanted` afterwards."""

    role: str
    key: str
    fate: Fate
    because: tuple[str, ...]
    files: int
    loaded: int
    wanted: int

    @property
    def says(self) -> str:
        whose = f"{self.key}{' of the draft worker' if self.role else ''}"
        there = f" ({count(self.files, 'file')})" if self.files else ""
        reasons = f": {'; '.join(self.because)}" if self.because else ""
        return f"{whose}{there} {self.fate}{reasons}"

    def to_json(self) -> dict[str, Any]:
        return {
            "role": self.role or "target",
            "key": self.key,
            "fate": self.fate,
            "because": list(self.because),
            "files": self.files,
            "loaded": self.loaded,
            "wanted": self.wanted,
        }


def survivals(before: Plan, after: Plan) -> tuple[Survival, ...]:
    pairs = (("", before.target, after.target), ("draft", before.draft, after.draft))
    return tuple(_survival(role, before, old, after, new) for role, old, new in pairs if old and old.files)


def _survival(role: str, before: Plan, old: CachePlan, after: Plan, new: CachePlan | None) -> Survival:
    files = sum((before.deployment.cache_dir / path).is_file() for path in old.paths)
    if new is None or not new.files:
        why = (
            f"it tunes nothing then: {after.deployment.server.tunes_because}"
            if not role
            else "no draft tunes"
        )
        return Survival(role, old.key, "is not needed", (why,), files, 0, 0)
    report = _predicted(after, new)
    loaded = sum(file.verdict in _LOADED for file in report.files)
    good = sum(file.verdict is Verdict.HIT for file in report.files)
    moved = tuple(_moves(before, old, after, new))
    wanted = len(new.files)
    if not files and not loaded:
        return Survival(role, old.key, "is not there", moved, 0, 0, wanted)
    if moved:
        own = (f"but {count(loaded, 'file')} of {wanted} are there under its own",) if loaded else ()
        return Survival(role, old.key, "is tuned again", (*moved, *own), files, loaded, wanted)
    fate: Fate = "survives in part" if loaded else "is tuned again"
    if good == wanted:
        return Survival(role, old.key, "survives", (), files, loaded, wanted)
    return Survival(role, old.key, fate, tuple(_complaints(report)), files, loaded, wanted)


def _moves(before: Plan, old: CachePlan, after: Plan, new: CachePlan) -> Iterator[str]:
    """What makes the folder another."""
    one, other = before.deployment, after.deployment
    if old.key != new.key:
        there, then = named_parts(old.key_parts), named_parts(new.key_parts)
        names = [name for name in {**there, **then} if there.get(name) != then.get(name)]
        yield f"the key is {new.key} then (another {', '.join(names)})"
    if one.flashinfer_version != other.flashinfer_version:
        yield f"FlashInfer {other.flashinfer_version} looks into a folder of its own"
    if one.arch != other.arch:
        yield f"{other.arch} has a folder of its own"


def _predicted(plan: Plan, cache_plan: CachePlan) -> VerifyReport:
    deployment, expected = plan.deployment, Expected.from_plan(cache_plan)
    folder = deployment.cache_dir / expected.folder
    found = find_caches(folder, _no_matter, deployment.cache_dir) if folder.is_dir() else []
    cache = found[0] if found else expected.empty_cache(deployment.cache_dir)
    checked = check(cache, deployment.sglang_version, True, [expected])
    return verify([checked], Server(_target(plan, cache)))


def _no_matter(error: OSError) -> None:
    """What cannot be looked into is not loaded either."""


def _target(plan: Plan, cache: Cache) -> Target:
    """As each file's own environment, but on the GPU that is meant."""
    deployment, gpu = plan.deployment, plan.deployment.inputs.gpu
    own = dict(Scanner().scan(cache).environment or {})
    environment = None
    if not _is(str(own.get("gpu")), gpu.name):
        environment = {**{name: str(value) for name, value in own.items()}, "gpu": f"NVIDIA {gpu.name}"}
        environment["flashinfer_version"] = deployment.flashinfer_version
    origin = "each file's own environment"
    return Target(environment, origin, deployment.flashinfer_version, deployment.arch)


def _is(reported: str, name: str) -> bool:
    """Whether a driver that reports this means that GPU, as far as it can be told."""
    try:
        return find_gpu(reported).name == find_gpu(name).name
    except ConfigError:
        return True


def _complaints(report: VerifyReport) -> Iterator[str]:
    found = [finding for finding in report.all_findings() if finding.severity is not Severity.INFO]
    yield from dict.fromkeys(finding.message for finding in found)
