"""Judge one node for each deployment: what its next start would do there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sgl_tune.deployment.versions import may_be
from sgl_tune.errors import UsageError
from sgl_tune.fleet.holdings import HeldCache, HeldStore, Holdings, missing, split
from sgl_tune.fleet.node import Node
from sgl_tune.fleet.outcome import Fault, Outcome, State
from sgl_tune.fleet.plans import Planned, Planner
from sgl_tune.fleet.take import MOST_NAMES
from sgl_tune.units import count

_THERE = "sgl-tune verify on that machine"
_ITSELF = "let the server tune it at its start: it saves what it tunes"
_NEWER = "take its env again, with this sgl-tune"
_AGAIN = "bring it there: sgl-tune pull, or start the server there once"
_ENDING = ("store-kills-start", "store-not-writable", "not-readable")  # codes of what ends a start


def filled(node: Node, reference: Node | None) -> Node:
    """Return the node; what it could not say about its server comes from the reference."""
    if reference is None:
        return node
    sglang = node.sglang or reference.sglang
    said, told = node.target.said, reference.target.said
    if not node.gpus:
        return replace(node, metadata=told, arch=reference.arch, sglang=sglang, gpus=reference.gpus)
    is_like = may_be(told.get("gpu", ""), node.gpus[0].name)
    return replace(node, metadata={**told, **said} if is_like else said, sglang=sglang)


def judge(node: Node, planner: Planner, reference: Node | None) -> Iterator[tuple[Planned | None, Outcome]]:
    """Yield one outcome per deployment, or a single one if no deployment can be planned there."""
    holdings = node.holdings
    if holdings is None:
        yield None, _unknown("older-env", "it says nothing of caches: an older sgl-tune wrote it", _NEWER)
        return
    try:
        planned = planner.planned(filled(node, reference))
    except UsageError as error:
        yield None, _unknown("not-planned", error.message, error.remedy or _THERE)
        return
    built = tuple(store_faults(holdings, reference.holdings if reference else None))
    for one in planned:
        yield one, Outcome((*_tactics(one, node, holdings), *built))


def _tactics(planned: Planned, node: Node, holdings: Holdings) -> Iterator[Fault]:
    verdict = planned.verdict
    if verdict.tunes != "nothing":
        if verdict.tunes == "unplanned":
            yield Fault("unknown", "not-planned", f"this server {verdict.says}", _ITSELF)
        named = planned.cache_dir
        if named is not None and str(named.absolute()) != holdings.cache_dir:
            why = f"its env looked in {holdings.cache_dir}, and the server looks in {named}"
            how = f"take its env with --cache-dir; --cache-dir {holdings.cache_dir} here says they are one"
            yield Fault("unknown", "other-folder", why, how)
            return
        caches = {cache.path: cache for cache in holdings.caches if cache.contents}
        yield from _unseen(planned, holdings, caches)
        yield from _best(planned, caches, node)


def _best(planned: Planned, caches: dict[str, HeldCache], node: Node) -> tuple[Fault, ...]:
    """Return a deployment's faults; if it has several nodes, those of the node that this one fits best."""
    uuids = [gpu.uuid for gpu in node.gpus]
    tried = [
        Outcome(tuple(fault for asked in of_node for fault in asked.judge(caches, uuids)))
        for of_node in planned.asks
    ]
    return max(tried, key=lambda outcome: outcome.rank, default=Outcome()).faults


def signatures(planned: Planned, node: Node) -> frozenset[str]:
    """Return the signatures of the files that a start on several nodes compares across nodes."""
    folders = {asked.expected.folder for of_node in planned.asks for asked in of_node}
    caches = node.holdings.caches if node.holdings and len(planned.asks) > 1 else ()
    told = (one.signature for cache in caches if cache.path in folders for one in cache.contents)
    return frozenset(filter(None, told))


def _unseen(planned: Planned, holdings: Holdings, caches: dict[str, HeldCache]) -> Iterator[Fault]:
    """Yield a doubt if a cache that is needed may be among what could not be opened."""
    asked = {one.expected.folder for of_node in planned.asks for one in of_node}
    if holdings.unseen:
        state: State = "good" if asked <= caches.keys() else "unknown"
        why = f"its env could not look into all: {holdings.unseen[0]}"
        yield Fault(state, "not-readable", why, _THERE)


def _unknown(code: str, message: str, remedy: str) -> Outcome:
    return Outcome((Fault("unknown", code, message, remedy),))


def store_faults(holdings: Holdings, reference: Holdings | None) -> Iterator[Fault]:
    for store in holdings.stores:
        yield from _own(store)
    for wanted in reference.stores if reference else ():
        if wanted.names:
            yield from _lacking(wanted, [one for one in holdings.stores if one.store == wanted.store])


def _own(store: HeldStore) -> Iterator[Fault]:
    total = store.found + store.built_again
    for told in store.findings:
        if told.severity == "error" and told.code in _ENDING:
            yield Fault("fails", told.code, told.message, _THERE, store.store)
    if store.built_again:
        code = next((told.code for told in store.findings if told.severity == "error"), "store-stale")
        why = f"{store.built_again:,} of {count(total, 'item')} in {store.path} would be compiled again"
        built = {store.store: store.built_again}
        yield Fault("compiles", code, why, "sgl-tune relocate on the root", store.store, built, total)


def _lacking(wanted: HeldStore, there: list[HeldStore]) -> Iterator[Fault]:
    names = "".join(sorted({one for store in there for one in split(store.names)}))
    lacks = missing(wanted.names, names, MOST_NAMES)
    if not lacks:
        return
    least = "at least " if wanted.found > MOST_NAMES else ""
    why = f"it lacks {least}{lacks:,} of {count(wanted.found, 'item')} that the target has"
    built, of = {wanted.store: lacks}, min(wanted.found, MOST_NAMES)
    yield Fault("compiles", "store-lacks", why, _AGAIN, wanted.store, built, of)
