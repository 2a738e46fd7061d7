"""Plan the caches that servers look for: those of given deployments, or of a cache's manifest."""

from collections.abc import Callable, Iterator, Sequence

from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import caches_open, find_caches
from sgl_tune.cache.manifest import Manifest
from sgl_tune.deployment.deployment import deployment_from_json
from sgl_tune.deployment.project_file import Meant
from sgl_tune.deployment.selection import deployment_of
from sgl_tune.errors import UsageError
from sgl_tune.keys.nearest import nearest
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import BY_ITSELF, WARM, Checked, Expected
from sgl_tune.verify.findings import Finding, finding


def expected_of(plan: Plan) -> list[Expected]:
    """Return the caches of the target and of a draft worker; none if the server tunes nothing."""
    caches = [cache for cache in (plan.target, plan.draft) if cache and cache.groups]
    if not caches:
        return []
    fills = plan.caches if verdict_of(plan).obstacle is None else ()
    return [Expected.of(one, one.ops, WARM if one in fills else BY_ITSELF) for one in caches]


def expected_by_manifest(cache: Cache, manifest: Manifest) -> Expected | None:
    """Return what the manifest's deployment looks up; None if it is invalid or uses another key."""
    plan = _plan_by_manifest(cache, manifest)
    expected = expected_of(plan) if plan else []
    return next((item for item in expected if item.key == cache.key), None)


def _plan_by_manifest(cache: Cache, manifest: Manifest) -> Plan | None:
    try:
        return make_plan(deployment_from_json(manifest.deployment, str(cache.manifest)), gpus=())
    except UsageError:
        return None


def plan_of(checked: Checked, plans: Sequence[Plan]) -> Plan | None:
    """Return the plan that has the cache's key: a given one, else the plan of the cache's manifest."""
    mine = [_plan_by_manifest(checked.cache, checked.manifest)] if checked.manifest else []
    known = [plan for plan in (*plans, *mine) if plan]
    keys = {checked.cache.key}
    return next((plan for plan in known if keys & {cache.key for cache in plan.caches}), None)


def meant_on(target: Target, by: ByServer) -> list[Meant]:
    """Return the given servers as they start on the target. The target's own GPU wins over that of
    sgl-tune.toml and loses to --gpu; `plans_of` adds it."""
    row = None if by.flags.target.gpu or by.flags.target.arch else target.model
    found = []
    for one in by.meant():
        own = one.flags.changed(gpu=None, arch=None) if row else one.flags
        arch = own.target.arch or (None if own.target.gpu or row else target.arch)
        version = own.target.flashinfer_version or target.flashinfer
        asked = target.flags(own.changed(flashinfer_version=version, arch=arch), one.command)
        found.append(one._replace(flags=asked.changed(gpu=None) if row else asked))
    return found


def plans_of(meant: Sequence[Meant], target: Target) -> list[Plan]:
    named = [one.flags.target for one in meant]
    gpus = [None if one.gpu or one.arch else target.model for one in named]
    return [make_plan(deployment_of(one, gpu=gpu)) for one, gpu in zip(meant, gpus, strict=True)]


def findings_of(plans: Sequence[Plan], caches: Sequence[Cache] | None) -> list[Finding]:
    """Return the plans' findings. `caches`: where keys are looked for; None for each whole cache
    directory."""
    return [*_of_plans(plans), *_near_keys(plans, caches)]


def looked_for(
    plans: Sequence[Plan], there: list[Cache] | None, where: str | None, on_error: Callable[[OSError], None]
) -> list[tuple[Cache, Sequence[Expected]]]:
    """Return the caches that the starts look for, among `there` or in the cache directories."""
    if there is None:
        return [(cache, [expected]) for cache, expected in _of_deployments(plans, on_error)]
    expected = [item for plan in plans for item in expected_of(plan)]
    return [(cache, expected) for cache in _matching(there, plans, expected, str(where))] if expected else []


def _of_plans(plans: Sequence[Plan]) -> Iterator[Finding]:
    for plan in plans:
        verdict, name = verdict_of(plan), plan.deployment.name
        if verdict.tunes == "nothing":
            message = f"this server {verdict.says}; it loads no cache, whatever files there are"
            yield finding("tunes-nothing", message, where=name)
        elif verdict.tunes == "unplanned":
            message = f"this server {verdict.says}; whether files hold that is not known"
            by_itself = "let the server tune it at its start: it saves what it tunes"
            yield finding("not-planned", message, by_itself, where=name)


def _of_deployments(
    plans: Sequence[Plan], on_error: Callable[[OSError], None]
) -> Iterator[tuple[Cache, Expected]]:
    """Yield each folder that a start opens, even if it does not exist; then the same key under other
    versions and GPUs."""
    for plan in plans:
        cache_dir = plan.deployment.cache_dir
        for expected in expected_of(plan):
            folder = cache_dir / expected.folder
            found = find_caches(folder, on_error, cache_dir) if folder.is_dir() else []
            yield found[0] if found else expected.empty_cache(cache_dir), expected
            for cache in caches_open(cache_dir):
                if cache.layout == "sglang" and cache.key == expected.key and cache.path != folder:
                    yield cache, expected


def _near_keys(plans: Sequence[Plan], caches: Sequence[Cache] | None) -> Iterator[Finding]:
    """Yield a finding for each key that no cache has: the nearest cache, and what it was made for."""
    for plan in plans:
        there = caches_open(plan.deployment.cache_dir) if caches is None else caches
        draft = plan.deployment.draft_deployment
        pairs = (("", plan.deployment, plan.target), ("the draft's ", draft, plan.draft))
        for whose, deployment, cache in pairs:
            if not deployment or not cache or not cache.groups:
                continue
            is_there = any(one.key == cache.key and one.files for one in there)
            if near := None if is_there else nearest(deployment, there):
                message = f"no cache is under {whose}key {cache.key}; nearest is {near.says}"
                yield finding("nearest-key", message, where=deployment.name)


def _matching(
    caches: list[Cache], plans: Sequence[Plan], expected: Sequence[Expected], where: str
) -> list[Cache]:
    """Return the caches with a deployment's key. A single cache is returned anyway, to say what is wrong."""
    keys = [item.key for item in expected]
    own = [cache for cache in caches if cache.key in keys]
    if own or len(caches) == 1:
        return own or caches
    near = next((one for plan in plans if (one := nearest(plan.deployment, caches))), None)
    raise UsageError(
        f"{where}: none of its {len(caches)} caches has this deployment's key {' or '.join(keys)}"
        + (f"; nearest is {near.says}" if near else ""),
        "`sgl-tune warm --dry-run` with the same flags shows the parts of the key",
    )
