"""Judge a node's rank files for one deployment, by what its own machine says about each file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from runtime.flashinfer.versions import flashinfer_of
from runtime.sglang.kept_files import KeptFiles
from sgl_tune.cache.loader import Ignored, metadata_mismatches
from sgl_tune.cache.record import WAY_OUT
from sgl_tune.fleet.node import Content, HeldCache, asked_lookups, split
from sgl_tune.fleet.outcome import Fault
from sgl_tune.units import count, some
from sgl_tune.verify.environment import Target, ignored_finding, unsaid_finding
from sgl_tune.verify.expected import Expected
from sgl_tune.verify.findings import CODES, UNUSABLE

_LOADS = ("hit", "partial")
_THERE = "sgl-tune verify on that machine"
_Lacks = Sequence[tuple[str, Sequence[int]]]  # buckets by op


class Asked:
    """The lookups of one deployment's start, on machines of one kind."""

    def __init__(self, expected: Expected, release: KeptFiles, target: Target, of: int) -> None:
        """`of`: the number of entries, with those of the draft."""
        self.expected, self.release, self.target, self.of = expected, release, target, of
        self.reader = flashinfer_of(expected.folder.split("/")[2])
        # Of each op: digests of the lookups that the start makes, and of those that requests make.
        self._ops = [
            (op.op, asked_lookups(op, self.reader, "tuning"), asked_lookups(op, self.reader, "serving"))
            for op in expected.ops
        ]

    def judge(self, caches: Mapping[str, HeldCache], uuids: Sequence[str]) -> Iterator[Fault]:
        held = caches.get(self.expected.folder)
        if held is None or not held.contents:
            yield self._tunes("rank-missing", _nothing_there(self.expected, caches))
            return
        files = {name: content for content in held.contents for name in content.files}
        found: dict[tuple[str, str], Fault] = {}
        for group in _named(self.expected.groups, uuids):
            for fault in self._of_group(group, [files.get(name) for name in group]):
                found.setdefault((fault.code, fault.message), fault)
        yield from found.values()
        yield from self._of_folder(held)

    def _of_group(self, names: Sequence[str], members: Sequence[Content | None]) -> Iterator[Fault]:
        if not any(members):
            why = f"{count(len(names), 'rank file')} of {names[0]} on are missing"
            yield self._tunes("rank-missing", why)
            return
        seen = [one for one in members if one is None or not one.is_unread]
        unequal = len({content.signature if content else None for content in seen}) > 1
        if unequal and self.release.deletes_unequal_ranks:
            why = f"{_odd(names, members)}: SGLang deletes all of them, and tunes"
            yield self._tunes("ranks-differ", why)
            return
        absent = [name for name, content in zip(names, members, strict=True) if content is None]
        if absent:
            yield self._tunes("rank-missing", f"{some(absent)}: no such file")
        if unequal and not absent:
            why = f"{_odd(names, members)}: every rank loads its own"
            yield Fault("good", "ranks-differ", why, "copy one rank's file over the others, or warm again")
        for content in {id(content): content for content in members if content}.values():
            yield from self._of_content(content)

    def _of_content(self, content: Content) -> Iterator[Fault]:
        elsewhere = self._elsewhere(content)
        if elsewhere:
            yield elsewhere
        elif content.is_unread:
            why = next((told.message for told in content.findings), "it was not read")
            yield Fault("unknown", "is-a-link", why, _THERE)
        elif content.alone not in _LOADS:
            told = next(iter(content.findings), None)
            why = told.message if told else f"its own machine calls it {content.alone}"
            code = told.code if told else content.alone
            yield _fails(code, why) if content.alone == "crash" else self._tunes(code, why)
        else:
            for told in content.findings:
                if told.severity == "error":
                    yield _fails(told.code, told.message)
            yield from self._lacking(content)

    def _elsewhere(self, content: Content) -> Fault | None:
        if not content.environment:
            return None
        current = self.target.for_file(content.environment)
        hard, soft = metadata_mismatches(content.environment, current, self.reader)
        if hard or soft:
            found = ignored_finding(Ignored(hard, soft))
            return self._tunes(found.code, found.message)
        unsaid = self.target.unsaid(content.environment)
        if unsaid and content.alone in _LOADS:
            found = unsaid_finding(unsaid, self.target)
            return Fault("unknown", found.code, found.message, found.remedy)
        return None

    def _lacking(self, content: Content) -> Iterator[Fault]:
        if content.lookups is None:
            why = f"its {count(content.entries, 'entry')} were too many to list"
            yield Fault("unknown", "keys-unknown", why, _THERE)
            return
        held = frozenset(split(content.lookups))
        tuned = [(name, _missing(tuning, held)) for name, tuning, _ in self._ops]
        if any(buckets for _, buckets in tuned):
            yield self._tunes("keys-missing", f"it lacks {_entries(tuned)}", tuned)
        served = [(name, _missing(serving, held)) for name, _, serving in self._ops]
        if any(buckets for _, buckets in served):
            why = f"it lacks {_entries(served)}, which only requests ask for: they run on the fallback tactic"
            yield Fault("good", "keys-missing", why, self.expected.way_out)

    def _of_folder(self, held: HeldCache) -> Iterator[Fault]:
        for told in held.findings:
            if told.code == "not-writable" and self.release.always_saves:
                yield Fault("fails", told.code, told.message, CODES[told.code].remedy)
            elif told.code != "not-writable":
                yield Fault("good", told.code, told.message, _THERE)

    def _tunes(self, code: str, message: str, lacks: _Lacks | None = None) -> Fault:
        builds: Counter[str] = Counter()
        for name, buckets in lacks or [(name, list(tuning.values())) for name, tuning, _ in self._ops]:
            builds[name] += len(buckets)
        expected = self.expected
        return Fault("tunes", code, message, expected.way_out, builds=builds, of=self.of, part=expected.key)


def _fails(code: str, message: str) -> Fault:
    return Fault("fails", code, message, f"on that machine {WAY_OUT}" if code in UNUSABLE else _THERE)


def _missing(asked: Mapping[str, int], held: frozenset[str]) -> list[int]:
    return [bucket for lookup, bucket in asked.items() if lookup not in held]


def _named(groups: Sequence[Sequence[str]], uuids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the groups. File names that contain a GPU get this machine's UUIDs, in its order."""
    place = 0
    for group in groups:
        names = []
        for name in group:
            names.append(name.replace("<UUID>", uuids[place]) if place < len(uuids) else name)
            place += 1
        yield names


def _nothing_there(expected: Expected, caches: Mapping[str, HeldCache]) -> str:
    elsewhere = sorted(path for path in caches if path.endswith(f"/{expected.key}"))
    if elsewhere:
        return f"nothing in {expected.folder}; under the same key there is {some(elsewhere)}"
    others = f"; it has {count(len(caches), 'cache')} of other keys" if caches else ""
    return f"nothing in {expected.folder}{others}"


def _odd(names: Sequence[str], members: Sequence[Content | None]) -> str:
    contents = [content.signature if content else None for content in members]
    usual = Counter(one for one in contents if one is not None).most_common(1)[0][0]
    odd = [name.removesuffix(".json") for name, one in zip(names, contents, strict=True) if one != usual]
    return f"the ranks of a group are not equal ({some(odd)})"


def _entries(lacks: _Lacks) -> str:
    return "; ".join(
        f"{op.rsplit('::', 1)[-1]} at {buckets[0] if len(buckets) == 1 else count(len(buckets), 'bucket')}"
        for op, buckets in lacks
        if buckets
    )
