"""Which caches `verify` is about: those of a deployment, those at a path, or all of the cache directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runtime.server.gpus import find_gpu
from runtime.server.releases import RELEASES, number, release_named
from sgl_tune.cache.layouts import Cache, find_caches, resolve
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags
from sgl_tune.deployment.project_file import PROJECT_FILE
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.deployment.versions import installed_version
from sgl_tune.errors import UsageError
from sgl_tune.keys.advice import advised
from sgl_tune.keys.nearest import nearest
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import NOT_AT_ALL, Checked, Expected, check, expected_of
from sgl_tune.verify.findings import Finding, finding
from sgl_tune.verify.near_keys import near_keys


class VerifyOptions(NamedTuple):
    """The command line, as far as it says what to look at."""

    flags: ServerFlags
    path: str | None = None
    command: tuple[str, ...] = ()
    deployment: str | None = None
    stores: frozenset[Path] = frozenset()  # folders that are judged beside the caches

    @property
    def names_a_deployment(self) -> bool:
        if self.command or self.deployment or self.flags.given().keys() - TARGET_FIELDS:
            return True
        return self.path is None and os.path.lexists(PROJECT_FILE)


class Scope(NamedTuple):
    """`target` knows at least what the deployments say of FlashInfer and GPU."""

    checked: tuple[Checked, ...]
    target: Target
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    plans: tuple[Plan, ...] = ()


def scope_of(asked: VerifyOptions, target: Target) -> Scope:
    unread: list[OSError] = []
    on_error = unread.append
    plans = _plans(asked, target) if asked.names_a_deployment else []
    sglang = _sglang(asked.flags.sglang_version, plans)
    expected = [item for plan in plans for item in expected_of(plan)]
    notes = tuple(f"{plan.deployment.name}: {note}" for plan in plans for note in plan.deployment.notes)
    warnings = tuple(f"{plan.deployment.name}: {text}" for plan in plans for text in plan.deployment.warnings)
    if not plans and sglang:
        warnings = _warnings_of(sglang)
    cache_dir = Path(asked.flags.cache_dir) if asked.flags.cache_dir else default_cache_dir()
    near: list[Finding] = []
    if plans and asked.path is None:
        checked = [check(cache, sglang, True, [item]) for cache, item in _of_deployments(plans, on_error)]
        near += near_keys(plans)
    else:
        there = resolve(asked.path, cache_dir, on_error, asked.stores)
        found = _matching(there, plans, asked.path or str(cache_dir)) if expected or not plans else []
        near += near_keys(plans, found)
        whole = asked.path is None or not Path(asked.path).is_file()
        checked = [check(cache, sglang, whole, expected) for cache in found]
    findings = (*map(_unreadable, unread), *_of_plans(plans), *near)
    if not (findings or plans or asked.stores or any(item.cache.files for item in checked)):
        raise UsageError(
            f"nothing to verify in {asked.path or cache_dir}: no cache file is there",
            "fill it first, or name the deployment to see which files its server looks for",
        )
    narrowed = _narrowed(target, asked.flags, plans)
    return Scope(tuple(checked), narrowed, notes, warnings, findings, tuple(plans))


def _unreadable(error: OSError) -> Finding:
    message = f"it cannot be looked into ({error.strerror}), so what it holds is unknown"
    remedy = "run as a user who may, or repair the folder's mode"
    return finding("not-readable", message, remedy, where=str(error.filename))


def _of_plans(plans: Sequence[Plan]) -> Iterator[Finding]:
    for plan in plans:
        verdict, name = advised(plan), plan.deployment.name
        if not verdict.runs:
            yield finding("not-planned", f"this server {verdict.says}", NOT_AT_ALL, where=name)
        elif verdict.tunes == "nothing":
            message = f"this server {verdict.says}; it loads no cache, whatever files there are"
            yield finding("tunes-nothing", message, "nothing to do", where=name)
        elif verdict.tunes == "unplanned":
            message = f"this server {verdict.says}; whether files hold that is not known"
            by_itself = "let the server tune it at its start: it saves what it tunes"
            yield finding("not-planned", message, by_itself, where=name)


def _sglang(asked: str | None, plans: Sequence[Plan]) -> str | None:
    """None where only a cache's manifest may know."""
    if asked:
        return release_named(asked).release.version
    return plans[0].deployment.sglang_version if plans else installed_version("sglang")


def _warnings_of(sglang: str) -> tuple[str, ...]:
    """None of an installed version without a cache: its caches may be for another machine."""
    known = number(sglang) >= RELEASES[0].number
    return tuple(filter(None, [release_named(sglang).warning])) if known else ()


def _plans(asked: VerifyOptions, target: Target) -> list[Plan]:
    flags = replace(
        asked.flags,
        flashinfer_version=asked.flags.flashinfer_version or target.flashinfer,
        arch=asked.flags.arch or target.arch,
    )
    return [make_plan(chosen) for chosen in select_deployments(flags, asked.command, asked.deployment)]


def _of_deployments(
    plans: Sequence[Plan], on_error: Callable[[OSError], None]
) -> Iterator[tuple[Cache, Expected]]:
    """Each folder that a start looks into, there or not; then the same key under other versions and GPUs."""
    for plan in plans:
        cache_dir = plan.deployment.cache_dir
        for expected in expected_of(plan):
            folder = cache_dir / expected.folder
            found = find_caches(folder, on_error, cache_dir) if folder.is_dir() else []
            yield found[0] if found else expected.empty_cache(cache_dir), expected
            for cache in find_caches(cache_dir, _no_matter) if cache_dir.is_dir() else []:
                if cache.layout == "sglang" and cache.key == expected.key and cache.path != folder:
                    yield cache, expected


def _no_matter(error: OSError) -> None:
    """A folder that this deployment's server does not look into."""


def _matching(caches: list[Cache], plans: Sequence[Plan], where: str) -> list[Cache]:
    """With a deployment: its own caches among these, or the only one there is, to say what is wrong."""
    keys = [item.key for plan in plans for item in expected_of(plan)]
    own = [cache for cache in caches if cache.key in keys]
    if not keys or own or len(caches) == 1:
        return own or caches
    near = next((one for plan in plans if (one := nearest(plan.deployment, caches))), None)
    raise UsageError(
        f"{where}: none of its {len(caches)} caches has this deployment's key {' or '.join(keys)}"
        + (f"; nearest is {near.says}" if near else ""),
        "`sgl-tune warm --dry-run` with the same flags shows the parts of the key",
    )


def _narrowed(target: Target, flags: ServerFlags, plans: Sequence[Plan]) -> Target:
    versions = {flags.flashinfer_version, *(plan.deployment.flashinfer_version for plan in plans)} - {None}
    archs = {flags.arch, *(plan.deployment.arch for plan in plans)} - {None}
    return replace(
        target,
        flashinfer=target.flashinfer or (versions.pop() if len(versions) == 1 else None),
        arch=target.arch or (archs.pop() if len(archs) == 1 else None),
        gpu=find_gpu(flags.gpu).name if flags.gpu else None,
    )
