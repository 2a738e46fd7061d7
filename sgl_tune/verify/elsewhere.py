"""Judge caches that the server never opens, because they are of another FlashInfer or GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from runtime.flashinfer.versions import number
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.prune import kin, newest_versions
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Checked
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict, VerifyReport, finding
from sgl_tune.verify.judge import Judge


def is_elsewhere(cache: Cache, target: Target) -> bool:
    """Whether the cache is in a folder that the target's server does not open, whatever its files say.
    Folders of the managed store are not judged, since their names depend on more than version and
    architecture."""
    if cache.layout == "flashinfer-v2":
        return False
    version = cache.flashinfer and target.flashinfer and cache.flashinfer != target.flashinfer
    arch = cache.arch and target.arch and _capability(cache.arch) != _capability(target.arch)
    return bool(version or arch)


def _capability(arch: str) -> str:
    """Return the digits of an architecture, because SGLang writes sm90 and vLLM writes 90."""
    return "".join(filter(str.isdigit, arch))


def verify_elsewhere(checked: Checked, target: Target, stale: bool) -> VerifyReport:
    """Report a cache that the server never opens. `stale`: the target has other caches, so this one is
    only in the way."""
    cache = checked.cache
    judge = _its_own(cache.flashinfer)
    files = tuple(
        FileReport(file.path, Verdict.IGNORED, tuple(_broken_there(judge, file.path, cache.root)))
        for file in cache.files
    )
    server = ", ".join(filter(None, (target.flashinfer and f"FlashInfer {target.flashinfer}", target.arch)))
    message = f"the server ({server}) never looks in here"
    if stale:
        return VerifyReport(files, (finding("stale-sibling", message, where=cache.path),))
    way_out = checked.expected.way_out if checked.expected else "sgl-tune warm for this server"
    return VerifyReport(files, (finding("other-folder", message, way_out, where=cache.path),))


@lru_cache(maxsize=8)
def _its_own(flashinfer: str | None) -> Judge:
    """Return the judge for the servers that do open such a folder. One judge serves all folders, so that
    equal files are judged once.
    """
    return Judge(Target(None, "its own").in_folder(flashinfer))


def _broken_there(judge: Judge, path: Path, root: Path | None) -> Iterator[Finding]:
    try:
        judged = judge.judge(path, read_below(path, root))
    except OSError:
        return
    if judged.verdict is Verdict.CRASH:
        message = f"a server that does look here: {judged.findings[0].message}"
        yield finding("crash-elsewhere", message, severity=Severity.WARNING)


def stale_siblings(caches: Sequence[Cache]) -> Iterator[Finding]:
    """Yield a finding for each cache of an older FlashInfer beside a cache of a newer one."""
    newest = newest_versions((kin(cache), cache.flashinfer) for cache in caches)
    for cache in caches:
        newer = newest.get(kin(cache))
        if cache.flashinfer and newer and number(cache.flashinfer) < number(newer):
            message = f"there are caches for FlashInfer {newer} too"
            remedy = "sgl-tune prune --stale, once nothing runs the older one"
            yield finding("stale-sibling", message, remedy, where=cache.path)
