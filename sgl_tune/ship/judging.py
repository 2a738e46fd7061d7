"""What a machine's next start would do with a bundle's caches and stores, before they are there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.layouts import find_caches
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.stores.find import find_stores
from sgl_tune.verify.check import check
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Severity
from sgl_tune.verify.stores import machine_of, verify_stores, with_stores
from sgl_tune.verify.stores_page import stores_line
from sgl_tune.verify.verdict_line import verdict_line
from sgl_tune.verify.verify import Server, verify


class Judgement(NamedTuple):
    ok: bool
    verdict: str
    objections: tuple[str, ...]


def judge(folder: Path, manifest: BundleManifest, target: Target, place: str) -> Judgement:
    """`folder` holds what will be seen at `place`."""
    unread: list[OSError] = []
    caches = find_caches(folder) if manifest.caches else []
    stores = find_stores(folder, unread.append) if manifest.stores else []
    judged = verify_stores(stores, machine_of(ServerFlags(), target, None, place))
    report = verify([check(cache, None) for cache in caches], Server(target))
    report = with_stores(report, judged, target)
    ok = report.ok() and not unread
    said = (
        f"{file.path.relative_to(folder)}: {found.message}"
        for file in report.files
        for found in file.findings
        if found.severity is Severity.ERROR
    )
    errors = (found for found in report.findings if found.severity is Severity.ERROR)
    others = (str(found).replace(f"{folder}/", "") for found in errors)
    line = verdict_line(report, (), ok, stores_line(judged) if judged else None)
    return Judgement(ok, line, tuple(dict.fromkeys((*said, *others))))
