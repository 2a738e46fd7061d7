"""Judge whether the rank files here serve a second server, as `verify` judges files without a start."""

from collections.abc import Iterator
from dataclasses import dataclass

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.recorded.caches import RecordedCache
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.units import count
from sgl_tune.verify.by_server import expected_of_record
from sgl_tune.verify.environment import UNTOLD
from sgl_tune.verify.findings import Severity, Verdict, VerifyReport
from sgl_tune.verify.scope import check
from sgl_tune.verify.verify import verify

_LOADED = (Verdict.HIT, Verdict.PARTIAL)


@dataclass(frozen=True, slots=True)
class Survival:
    """The fate of one cache. `files`: the first server's files here. `loaded`: entries out of `wanted`."""

    role: str
    key: str
    fate: str
    because: tuple[str, ...]
    files: int
    loaded: int
    wanted: int

    @property
    def says(self) -> str:
        whose = f"{self.key}{' of the draft worker' if self.role == 'draft' else ''}"
        there = f" ({count(self.files, 'file')})" if self.files else ""
        reasons = f": {'; '.join(self.because)}" if self.because else ""
        return f"{whose}{there} {self.fate}{reasons}"


def survivals(before: RecordedPlan, after: RecordedPlan, gpu: str) -> Iterator[Survival]:
    """Yield each cache's fate. `gpu`: the second server's GPU, as its driver names it."""
    old, new = (dict(zip(("target", "draft"), plan.all_caches, strict=False)) for plan in (before, after))
    for role in {**old, **new}:
        mine, other = old.get(role), new.get(role)
        there = _there(before, mine or other)
        if other is None:
            key = mine.key if mine else ""
            yield Survival(role, key, "is not needed", ("nothing is tuned then",), there, 0, 0)
        else:
            yield _survival(role, before, mine, after, other, gpu)


def _survival(
    role: str,
    before: RecordedPlan,
    mine: RecordedCache | None,
    after: RecordedPlan,
    other: RecordedCache,
    gpu: str,
) -> Survival:
    report = _judged(after, other, gpu)
    verdicts = [file.verdict for file in report.files]
    loaded, wanted = sum(verdict in _LOADED for verdict in verdicts), len(other.paths)
    is_whole, files = verdicts.count(Verdict.HIT) == wanted, _there(before, mine or other)
    moved = (f"it looks in {other.folder} then",) if mine and mine.folder != other.folder else ()
    key = (mine or other).key
    if moved and is_whole:
        return Survival(role, key, "has its successor", moved, files, loaded, wanted)
    if not files:
        return Survival(role, key, "is not there", moved, files, loaded, wanted)
    if is_whole:
        return Survival(role, key, "survives", (), files, loaded, wanted)
    fate = "survives in part" if loaded and not moved else "is tuned again"
    told = (one.message for one in report.all_findings() if one.severity is not Severity.INFO)
    return Survival(role, key, fate, moved or tuple(dict.fromkeys(told)), files, loaded, wanted)


def _there(plan: RecordedPlan, cache: RecordedCache | None) -> int:
    paths = cache.paths if cache else ()
    return sum((plan.deployment.cache_dir / path).is_file() for path in paths)


def _judged(plan: RecordedPlan, cache: RecordedCache, gpu: str) -> VerifyReport:
    """Judge files in their own environment, but for this GPU and this FlashInfer."""
    expected, root = expected_of_record(cache), plan.deployment.cache_dir
    folder = root / cache.folder
    # A file that cannot be opened is not loaded either.
    found = find_caches(folder, lambda error: None, root) if folder.is_dir() else []
    checked = check(found[0] if found else expected.empty_cache(root), plan.sglang, True, [expected])
    target = UNTOLD._replace(flashinfer=plan.flashinfer, gpu=gpu.removeprefix("NVIDIA "))
    return verify([checked], target)
