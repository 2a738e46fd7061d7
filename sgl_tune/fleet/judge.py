"""Plan the deployments of a command line for each kind of machine among the nodes, and judge one node for
each deployment: what its next start would do there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from runtime.sglang.kept_files import kept_files
from sgl_tune.cache.asked import Verdict
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, deploy
from sgl_tune.deployment.versions import may_be
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.fleet.node import HeldCache, HeldStore, Holdings, Node, missing, split
from sgl_tune.fleet.outcome import Fault, Outcome, State
from sgl_tune.fleet.tactics import Asked
from sgl_tune.fleet.take import MOST_NAMES
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.units import count
from sgl_tune.verify.environment import UNTOLD, Target
from sgl_tune.verify.planned import expected_of, meant_on, plans_of
from sgl_tune.verify.scope import VerifyOptions

_THERE = "sgl-tune verify on that machine"
_ITSELF = "let the server tune it at its start: it saves what it tunes"
_NEWER = "take its env again, with this sgl-tune"
_AGAIN = "bring it there: sgl-tune pull, or start the server there once"
_ENDING = ("store-kills-start", "store-not-writable", "not-readable")  # codes of what ends a start
_MOST_KINDS = 256


@dataclass(frozen=True)
class Planned:
    """One deployment on one kind of machine. `asks`: the lookups of each of its nodes."""

    name: str
    plan: Plan
    asks: tuple[tuple[Asked, ...], ...]

    @cached_property
    def verdict(self) -> Verdict:
        return verdict_of(self.plan)

    @property
    def cache_dir(self) -> Path | None:
        """Return the named cache directory, or None: then each machine uses its own."""
        named = self.plan.deployment.cache_dir
        return None if named == default_cache_dir() else named


class NotServing(UsageError):
    """A machine cannot serve this. Other usage errors concern the command line."""


class Planner:
    """Plans each kind of machine once."""

    def __init__(self, asked: VerifyOptions) -> None:
        self._asked = asked
        self._kinds: dict[object, Sequence[Planned] | UsageError] = {}

    def planned(self, node: Node) -> Sequence[Planned]:
        """Return the plans for a node; raise UsageError if none can be made for such a machine."""
        gpu = replace(node.gpus[0], uuid="") if node.gpus else None
        kind = (node.sglang, node.arch, gpu, tuple(sorted((node.metadata or {}).items())))
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) == _MOST_KINDS:
                raise UsageError(f"more than {_MOST_KINDS} kinds of machines in one file", "give it in parts")
            found = self._kinds[kind] = self._plan(node.target)
        if isinstance(found, UsageError):
            raise found
        return found

    @property
    def refusal(self) -> UsageError | None:
        """Return the first error if no machine at all can start such a server."""
        errors = [found for found in self._kinds.values() if isinstance(found, UsageError)]
        return errors[0] if errors and len(errors) == len(self._kinds) else None

    @property
    def plans(self) -> Iterator[Plan]:
        for found in self._kinds.values():
            if not isinstance(found, UsageError):
                yield from (one.plan for one in found)

    def _plan(self, target: Target) -> Sequence[Planned] | UsageError:
        reads = target.typed(self._asked.by.flags.target)
        try:
            return [self._planned(plan, reads) for plan in self._plans_on(target)]
        except CheckFailed as error:
            return NotServing(error.message, error.remedy)
        except UsageError as error:
            return NotServing(error.message, error.remedy) if self._is_sound else error

    def _plans_on(self, target: Target) -> list[Plan]:
        return plans_of(meant_on(target, self._asked.by), target)

    @cached_property
    def _is_sound(self) -> bool:
        """Whether the command line can be planned on some machine."""
        try:
            self._plans_on(UNTOLD)
        except (UsageError, CheckFailed):
            return False
        return True

    def _planned(self, plan: Plan, target: Target) -> Planned:
        reads = target._replace(flashinfer=plan.deployment.inputs.flashinfer_version)
        plans = [make_plan(one, gpus=()) for one in _of_each_node(plan.deployment)]
        return Planned(plan.deployment.name, plan, tuple(_asked(one, reads) for one in plans))


def _of_each_node(deployment: Deployment) -> list[Deployment]:
    inputs = deployment.inputs
    if inputs.asked.nnodes == 1:
        return [deployment]
    return [
        deploy(replace(inputs, asked=replace(inputs.asked, node_rank=number)))
        for number in range(inputs.asked.nnodes)
    ]


def _asked(plan: Plan, target: Target) -> tuple[Asked, ...]:
    expected = expected_of(plan)
    entries = (entry for one in expected for op in one.ops for entry in op.entries)
    of = sum(entry.asked_by == "tuning" for entry in entries)
    return tuple(Asked(one, kept_files(plan.deployment.release.number), target, of) for one in expected)


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
