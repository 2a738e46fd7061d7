"""Files that harm whichever server reads them, so that no environment that is asked about decides it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sgl_tune.cache.folder import Way, reader
from sgl_tune.cache.layouts import Cache
from sgl_tune.verify.environment import UNTOLD
from sgl_tune.verify.findings import Finding, Verdict
from sgl_tune.verify.judge import Judge
from sgl_tune.verify.managed import verify_managed
from sgl_tune.verify.vllm import looks_before_loading

_FAILS_IN_A_KERNEL = "tactic-unusable"


def unusable_files(cache: Cache) -> Iterator[Path]:
    """Read as the server reads them that they say they were tuned for: its loader dies, or its kernels fail.
    What cannot be read here is not judged."""
    if cache.layout == "flashinfer-v2":
        reports = verify_managed(cache, UNTOLD).files
        yield from (report.path for report in reports if _harms(report.verdict, report.findings))
        return
    judge = Judge(
        UNTOLD.in_folder(cache.flashinfer), None, looks_before_loading([f.path.name for f in cache.files])
    )
    with Way() as way:
        try:
            read = reader(cache.path, way, cache.root)
        except OSError:
            return
        for file in cache.files:
            try:
                _, raw = read(file.path)
            except OSError:
                continue
            if raw is not None:
                judged = judge.judge(file.path, raw)
                if _harms(judged.verdict, judged.findings):
                    yield file.path


def _harms(verdict: Verdict, findings: Iterable[Finding]) -> bool:
    return verdict is Verdict.CRASH or any(found.code == _FAILS_IN_A_KERNEL for found in findings)
