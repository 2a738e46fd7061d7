"""Whether the caches that are there serve another start: its files are judged as `verify` judges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from runtime.server.cache_key import named_parts
from sgl_tune.cache.layouts import find_caches
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.units import count
from sgl_tune.verify.check import check
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Expected
from sgl_tune.verify.findings import Severity, Verdict, VerifyReport
from sgl_tune.verify.verify import Server, verify

Fate = Literal[
    "survives", "survives in part", "has its successor", "is tuned again", "is not needed", "is not there"
]  # fmt: skip
Pair = tuple[str, CachePlan | None, CachePlan | None]
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
    return tuple(_survivals(before, after, pairs))


def _survivals(before: Plan, after: Plan, pairs: Iterable[Pair]) -> Iterator[Survival]:
    for role, old, new in pairs:
        if new is not None and new.files:
            yield _survival(role, before, old if old and old.files else None, after, new)
        elif old is not None and old.files:
            server = after.deployment.server
            why = f"it tunes nothing then: {server.tunes_because}" if not role else "no draft tunes then"
            yield Survival(role, old.key, "is not needed", (why,), _there(before, old), 0, 0)


def _survival(role: str, before: Plan, old: CachePlan | None, after: Plan, new: CachePlan) -> Survival:
    report = _predicted(after, new)
    verdicts = [file.verdict for file in report.files]
    loaded, wanted = sum(verdict in _LOADED for verdict in verdicts), len(new.files)
    moved = tuple(_moves(before, old, after, new)) if old else ()
    files = _there(before, old) if old else _there(after, new)
    fate, because = _fate(bool(moved), files, loaded, verdicts.count(Verdict.HIT) == wanted)
    said = {"moved": moved, "judged": tuple(_complaints(report)), "": ()}[because]
    return Survival(role, (old or new).key, fate, said, files, loaded, wanted)


def _fate(moved: bool, files: int, loaded: int, all_hit: bool) -> tuple[Fate, Literal["moved", "judged", ""]]:
    """And what says why."""
    if moved and all_hit:
        return "has its successor", "moved"
    if not files:
        return "is not there", "moved"
    if moved:
        return "is tuned again", "moved"
    if all_hit:
        return "survives", ""
    return "survives in part" if loaded else "is tuned again", "judged"


def _there(plan: Plan, cache: CachePlan) -> int:
    return sum((plan.deployment.cache_dir / path).is_file() for path in cache.paths)


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
    return verify([checked], Server(_target(deployment)))


def _no_matter(error: OSError) -> None:
    """What cannot be looked into is not loaded either."""


def _target(deployment: Deployment) -> Target:
    """As each file's own environment, but on the GPU that is meant."""
    origin, gpu = "each file's own environment", deployment.inputs.gpu.name
    return Target(None, origin, deployment.flashinfer_version, deployment.arch, gpu=gpu)


def _complaints(report: VerifyReport) -> Iterator[str]:
    found = [finding for finding in report.all_findings() if finding.severity is not Severity.INFO]
    yield from dict.fromkeys(finding.message for finding in found)
