"""What differs between two starts of one deployment, value by value, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.cache_key import named_parts
from runtime.server.releases import NEWEST, RELEASES, Release
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.explain.explain import command_line_of, rule_of_part, under
from sgl_tune.explain.fields import FIELDS, GROUPS, Field, Told, matters, other_fields
from sgl_tune.keys.keys import TunedOp, expected_keys
from sgl_tune.keys.plan import CachePlan, Plan

_ORDER = (*GROUPS, "key", "files", "ops")


@dataclass(frozen=True, slots=True)
class Difference:
    """`since`: the first release on the way that has it so; on the way down, the last one is `until`."""

    field: str
    group: str
    label: str
    before: Any
    after: Any
    why: str
    why_before: str
    since: str | None = None
    until: str | None = None

    def to_json(self) -> dict[str, Any]:
        names = ("field", "before", "after", "why", "why_before", "since", "until")
        return {name: getattr(self, name) for name in names}


class Way:
    """From one release to another, under all else of the second start."""

    def __init__(self, before: Deployment, after: Deployment) -> None:
        start, end = _place(before.server.release), _place(after.server.release)
        self.is_up = end > start
        rows = RELEASES[start + 1 : end + 1] if self.is_up else RELEASES[end:start][::-1]
        servers = [(row, under(after, row)) for row in rows]
        self._told = [(row, Told(server) if server else None) for row, server in servers]

    def turn(self, same: Any) -> dict[str, str]:
        """Where `same` of what a release told begins to hold, to the end of the way."""
        found = None
        for row, told in reversed(self._told):
            if told is None or not same(told):
                break
            found = row.version
        return {"since" if self.is_up else "until": found} if found else {}


def differences(before: Plan, after: Plan) -> tuple[Difference, ...]:
    way = Way(before.deployment, after.deployment)
    old, new = Told(before.deployment.server), Told(after.deployment.server)
    found = (
        *_of_fields(old, new, way),
        *_of_gate(old, new, way),
        *_of_key(old, new, way),
        *_of_caches(before, after, ""),
        *_of_caches(before, after, "draft"),
    )
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.group)))


def _place(release: Release) -> int:
    number = min(release, NEWEST, key=lambda row: row.number).number
    return next(index for index, row in enumerate(RELEASES) if row.number == number)


def _of_fields(old: Told, new: Told, way: Way) -> Iterator[Difference]:
    line = command_line_of(new.server.release)
    known = command_line_of(old.server.release).defaults
    others = [field for field in other_fields(new.server, line) if field.name in known]
    for field in (*FIELDS, *others):
        followed = matters(field, old.server) or matters(field, new.server)
        if followed and old.value(field) != new.value(field):
            yield _difference(field, field.label(line), old, new, way)


def _difference(field: Field, label: str, old: Told, new: Told, way: Way) -> Difference:
    after = new.value(field)
    turn = way.turn(lambda told: told.value(field) == after)
    return Difference(
        field.name, field.group, label, old.value(field), after, new.why(field), old.why(field), **turn
    )


def _of_gate(old: Told, new: Told, way: Way) -> Iterator[Difference]:
    """What opens it or keeps it closed, where that is another and it is open or closed as before."""
    before, after = old.server.tunes_because, new.server.tunes_because
    if old.server.tunes == new.server.tunes and before != after:
        turn = way.turn(lambda told: told.server.tunes_because == after)
        yield Difference("gate", "tuning", "gate", before, after, "", "", **turn)


def _of_key(old: Told, new: Told, way: Way) -> Iterator[Difference]:
    if old.server.key == new.server.key:
        return
    turn = way.turn(lambda told: told.server.key == new.server.key)
    before, after = named_parts(old.server.key_parts), named_parts(new.server.key_parts)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    why = f"another {', '.join(changed)}"
    yield Difference("key", "key", "key", old.server.key, new.server.key, why, "", **turn)
    yield from (_of_part(name, old, new, way) for name in changed)


def _of_part(name: str, old: Told, new: Told, way: Way) -> Difference:
    before, after = (named_parts(told.server.key_parts).get(name) for told in (old, new))
    turn = way.turn(lambda told: named_parts(told.server.key_parts).get(name) == after)
    rules = rule_of_part(name, new), rule_of_part(name, old)
    return Difference(name, "key", name, before, after, *rules, **turn)


def _of_caches(before: Plan, after: Plan, role: str) -> Iterator[Difference]:
    old, new = (plan.draft if role else plan.target for plan in (before, after))
    if old is None and new is None:
        return
    whose = f"{role} " if role else ""
    folders = (old.folder if old else None, new.folder if new else None)
    if folders[0] != folders[1]:
        why = f"FlashInfer {after.deployment.flashinfer_version}, {after.deployment.arch}, its key"
        yield Difference(f"{whose}folder", "files", f"{whose}folder", folders[0], folders[1], why, "")
    names = (_names(old), _names(new))
    if names[0] != names[1]:
        why = _why_files(after, new)
        yield Difference(f"{whose}files", "files", f"{whose}files", names[0], names[1], why, "")
    yield from _of_ops(old, new, whose, before, after)


def _why_spelled(before: Deployment, after: Deployment) -> str:
    """What the keys follow, each tried alone."""
    inputs = replace(before.inputs, flashinfer_version=after.flashinfer_version)
    fused = after.server.fused_finalize
    server = replace(before.server, fused_finalize=fused)
    why = []
    if _keys(replace(before, inputs=inputs)) != _keys(before):
        why.append(f"FlashInfer {after.flashinfer_version} spells the keys so")
    if _keys(replace(before, server=server)) != _keys(before):
        why.append(f"fused finalize is {'on' if fused else 'off'}")
    return "; ".join(why) or "the server's calls are others"


def _keys(deployment: Deployment) -> list[tuple[str, ...]]:
    return [op.keys for op in expected_keys(deployment)]


def _names(cache: CachePlan | None) -> list[str]:
    return [path.rsplit("/", 1)[-1] for path in cache.paths] if cache else []


def _why_files(after: Plan, cache: CachePlan | None) -> str:
    if cache is None or not cache.files:
        return "it tunes nothing there"
    if any("_gpu" in path for path in cache.paths):
        return f"{after.deployment.server.moe_runner_backend}'s files carry the GPU's UUID"
    return "a file a rank that tunes"


def _of_ops(
    old: CachePlan | None, new: CachePlan | None, whose: str, before: Plan, after: Plan
) -> Iterator[Difference]:
    here = {op.op: op for op in old.ops} if old else {}
    there = {op.op: op for op in new.ops} if new else {}
    for name in {**here, **there}:
        a, b = here.get(name), there.get(name)
        if a is None or b is None or a.keys != b.keys:
            why = _why_op(a, b, before, after)
            yield Difference(f"{whose}{name}", "ops", f"{whose}{name}", _of_op(a), _of_op(b), why, "")


def _of_op(op: TunedOp | None) -> dict[str, Any] | None:
    return {"buckets": list(op.buckets), "entries": len(op.keys)} if op else None


def _why_op(a: TunedOp | None, b: TunedOp | None, before: Plan, after: Plan) -> str:
    server = after.deployment.server
    if b is None:
        return server.tunes_because if not server.tunes else "no layer asks it there"
    if a is None:
        return server.tunes_because
    if a.buckets == b.buckets:
        return _why_spelled(before.deployment, after.deployment)
    if server.backend.ranged_by_chunk and server.release.ranges_by_chunk:
        return "its buckets reach as far as a gathered prefill chunk"
    return "its buckets reach as far as the dummy batch, or a prefill that is larger"
