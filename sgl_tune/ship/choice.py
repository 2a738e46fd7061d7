"""Choose the caches and stores to pack, and check whether a server would use them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.scan import Scanner
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import PackedCache
from sgl_tune.stores.find import TACTICS, Stored, find_stores, store_asked_for
from sgl_tune.stores.item import Item, OnError
from sgl_tune.stores.places import stores_of_this_user
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Checked
from sgl_tune.verify.findings import Severity
from sgl_tune.verify.scope import Scope, VerifyOptions, scope_of
from sgl_tune.verify.stores import Machine, for_another
from sgl_tune.verify.verify import is_elsewhere, verify

_FOR_ANOTHER = {"store-other-version": "are of another version", "store-other-arch": "are for another GPU"}
_NOT_PLACED = "is not packed: it is no cache of SGLang's in its place, where a server would find it"
_OF_THIS_PLACE = ("not-writable",)  # findings about this folder, and bundles land elsewhere


class Asked(NamedTuple):
    """The options that say what to pack."""

    by: ByServer
    paths: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()

    @property
    def cache_dir(self) -> Path | None:
        return Path(named) if (named := self.by.flags.target.cache_dir) else None


class Choice(NamedTuple):
    """What to pack. `objections`: why a server would not load all of it."""

    checked: tuple[Checked, ...]
    stores: tuple[Stored, ...]
    objections: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def choose(asked: Asked, target: Target, on_error: OnError) -> Choice:
    stores = list(dict.fromkeys(_stores(asked, on_error)))
    there = frozenset(stored.path for stored in stores)
    scopes = [s for path in asked.paths or (None,) if (s := _scope(asked, path, target, there))]
    checked = tuple(_distinct(scopes))
    if not checked and not stores:
        why = [str(found) for scope in scopes for found in scope.findings]
        said = ": ".join(["there is nothing to pack", *why[:1]])
        raise UsageError(said, "`sgl-tune inspect` lists what there is")
    by_sglang = (one for one in checked if one.cache.layout == "sglang")
    placed = tuple(one for one in by_sglang if one.cache.flashinfer and one.cache.arch and one.cache.key)
    others = [f"{one.cache.path}: {_NOT_PLACED}" for one in checked if one not in placed]
    if others and not placed and not stores:
        raise UsageError(others[0], "name a folder below flashinfer/autotune, or its key")
    return Choice(
        placed,
        tuple(stores),
        tuple(dict.fromkeys((*_objections(placed, scopes), *_of_one_gpu(placed)))),
        (*others, *(note for scope in scopes for note in scope.notes)),
        tuple(text for scope in scopes for text in scope.warnings),
    )


def _stores(asked: Asked, on_error: OnError) -> Iterator[Stored]:
    """Yield the stores that were requested, else those in a named folder."""
    folders = [Path(path) for path in asked.paths if Path(path).is_dir()]
    named = [store_asked_for(name) for name in asked.stores]
    if asked.stores and not folders:
        for only in filter(None, named):
            wanted = None if only == "all" else only
            if asked.cache_dir:
                yield from find_stores(asked.cache_dir, on_error, wanted)
            else:
                yield from stores_of_this_user(wanted)
        return
    every = not asked.stores or "all" in named
    for folder in folders:
        for stored in find_stores(folder, on_error):
            if every or stored.store in named:
                yield stored


def _scope(asked: Asked, path: str | None, target: Target, stores: frozenset[Path]) -> Scope | None:
    """Return the scope of caches to pack, or None if only stores are requested."""
    options = VerifyOptions(asked.by, path, stores)
    if path is None and not options.names_a_deployment:
        only_stores = asked.stores and TACTICS not in asked.stores
        if only_stores and not (asked.cache_dir or default_cache_dir()).is_dir():
            return None
    return scope_of(options, target)


def _distinct(scopes: Sequence[Scope]) -> Iterator[Checked]:
    """Yield each cache once. For a deployment: only in folders that its server opens."""
    seen: set[Path] = set()
    for one, scope in ((one, within) for within in scopes for one in within.checked):
        elsewhere = scope.plans and is_elsewhere(one.cache, scope.target)
        if one.cache.path not in seen and (one.cache.files or one.expected) and not elsewhere:
            seen.add(one.cache.path)
            yield one


def _of_one_gpu(checked: Sequence[Checked]) -> Iterator[str]:
    for one in checked:
        named = next((file for file in one.cache.files if file.rank and file.rank.gpu), None)
        if named:
            yield f"{named.path}: is named by one GPU, and a server on any other does not look for it"


def _objections(checked: Sequence[Checked], scopes: Sequence[Scope]) -> Iterator[str]:
    for scope in scopes:
        report = verify([one for one in checked if one in scope.checked], scope.target)
        for file in report.files:
            for found in file.findings:
                if found.severity is Severity.ERROR:
                    yield f"{file.path}: {file.verdict.value}: {found.message}"
        for found in (*scope.findings, *report.findings):
            if found.severity is Severity.ERROR and found.code not in _OF_THIS_PLACE:
                yield str(found)


def packed_cache(checked: Checked) -> PackedCache:
    scanned = Scanner().scan(checked.cache)
    cache, manifest = checked.cache, checked.manifest or Manifest({})
    environment = {
        name: value
        for name, value in sorted((scanned.environment or {}).items())
        if isinstance(value, str) and len(value) < 200
    }
    name = manifest.deployment.get("name")
    return PackedCache(
        path=f"flashinfer/autotune/{cache.flashinfer}/{cache.arch}/{cache.key}",
        key=str(cache.key),
        flashinfer=str(cache.flashinfer),
        arch=str(cache.arch),
        files=len(cache.files) + (cache.manifest is not None),
        entries=scanned.entries,
        environment=environment,
        key_parts=manifest.key_parts,
        deployment=name if isinstance(name, str) else None,
        sglang=manifest.sglang,
        driver=manifest.driver,
    )


def not_for(machine: Machine, item: Item) -> str | None:
    """Return why a server like `machine` would never look at an item, or None."""
    other = for_another(item, machine)
    return _FOR_ANOTHER.get(other.code, "are for another Python") if other else None
