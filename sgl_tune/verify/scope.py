"""Choose the caches to verify: a deployment's, those at a path, or all of the cache directory. A cache is
combined with what is known about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runtime.flashinfer.versions import number
from runtime.sglang.kept_files import files_doubt
from runtime.sglang.releases import checked_version
from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import resolve
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.cache.scan import Scanner
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.options import PROJECT_FILE
from sgl_tune.deployment.versions import installed_version
from sgl_tune.errors import UsageError
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Checked, Expected
from sgl_tune.verify.findings import Finding, finding

if TYPE_CHECKING:
    from sgl_tune.keys.plan import Plan


class VerifyOptions(NamedTuple):
    """The options that say what to verify."""

    by: ByServer
    path: str | None = None
    stores: frozenset[Path] = frozenset()  # folders of stores, judged separately

    @property
    def names_a_deployment(self) -> bool:
        if self.by.command or self.by.deployment or self.by.flags.given():
            return True
        return self.path is None and os.path.lexists(PROJECT_FILE)


class Scope(NamedTuple):
    """What to verify. `target`: has at least the FlashInfer and the GPU that the deployments name."""

    checked: tuple[Checked, ...]
    target: Target
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    plans: tuple[Plan, ...] = ()


def scope_of(asked: VerifyOptions, target: Target) -> Scope:
    unread: list[OSError] = []
    flags, path = asked.by.flags.target, asked.path
    cache_dir = Path(flags.cache_dir) if flags.cache_dir else default_cache_dir()
    whole = path is None or not Path(path).is_file()
    plans: list[Plan] = []
    said: list[Finding] = []
    if asked.names_a_deployment:
        from sgl_tune.verify.planned import findings_of, looked_for, meant_on, plans_of

        meant = meant_on(target, asked.by)
        plans = plans_of(meant, target)
        gpus = {one.flags.target.gpu for one in meant}
        flags = flags if len(gpus) > 1 else asked.by.flags.changed(gpu=gpus.pop()).target
        there = resolve(path, cache_dir, unread.append, asked.stores) if path is not None else None
        looked = looked_for(plans, there, path, unread.append)
        said = findings_of(plans, None if there is None else [cache for cache, _ in looked])
    else:
        looked = [(cache, ()) for cache in resolve(path, cache_dir, unread.append, asked.stores)]
    # A verdict that a server crashes on a file that is no cache file would help nobody.
    if not whole and any(one.is_foreign for one in Scanner().scan_all(cache for cache, _ in looked)):
        raise UsageError(f"{path}: not a cache file", "`sgl-tune inspect` lists the caches there are")
    sglang = _sglang(flags.sglang_version or target.sglang, plans)
    checked = [check(cache, sglang, whole, expected) for cache, expected in looked]
    findings = (*map(_unreadable, unread), *said)
    if not (findings or plans or asked.stores or any(item.cache.files for item in checked)):
        raise UsageError(
            f"nothing to verify in {path or cache_dir}: no cache file is there",
            "fill it first, or name the deployment to see which files its server looks for",
        )
    narrowed = _narrowed(target.typed(flags), plans)
    notes = tuple(f"{one.deployment.name}: {note}" for one in plans for note in one.deployment.inputs.notes)
    return Scope(tuple(checked), narrowed, notes, _warnings(plans, sglang), findings, tuple(plans))


def _warnings(plans: Sequence[Plan], sglang: str | None) -> tuple[str, ...]:
    if plans or sglang is None:
        return tuple(f"{plan.deployment.name}: {text}" for plan in plans for text in plan.warnings)
    return tuple(filter(None, [files_doubt(sglang, number(sglang))]))


def _unreadable(error: OSError) -> Finding:
    message = f"it cannot be read ({error.strerror}), so its contents are unknown"
    return finding("not-readable", message, where=str(error.filename))


def _sglang(asked: str | None, plans: Sequence[Plan]) -> str | None:
    """Return the SGLang release, or None if only a cache's manifest may know it."""
    if asked:
        return checked_version(asked)
    return plans[0].deployment.inputs.sglang_version if plans else installed_version("sglang")


def _narrowed(target: Target, plans: Sequence[Plan]) -> Target:
    """Return the target; what it leaves out comes from the plans, if they all agree."""
    versions = {plan.deployment.inputs.flashinfer_version for plan in plans}
    archs = {plan.deployment.arch for plan in plans}
    return target._replace(
        flashinfer=target.flashinfer or (versions.pop() if len(versions) == 1 else None),
        arch=target.arch or (archs.pop() if len(archs) == 1 else None),
    )


def check(cache: Cache, sglang: str | None, whole: bool = True, expected: Sequence[Expected] = ()) -> Checked:
    """Return the cache with the expectation for its key. What the caller leaves out comes from the
    manifest."""
    manifest, problem = None, None
    if cache.manifest is not None and cache.layout == "sglang":
        try:
            manifest = read_manifest(cache.manifest, cache.root)
        except BrokenManifest as error:
            problem = error
    mine = next((item for item in expected if item.key == cache.key), expected[0] if expected else None)
    if mine is None and manifest:
        from sgl_tune.verify.planned import expected_by_manifest

        mine = expected_by_manifest(cache, manifest)
    named = mine.named_as_in(cache) if mine else None
    version = sglang or (manifest.sglang if manifest else None)
    return Checked(cache, version, named, whole, manifest, problem)
