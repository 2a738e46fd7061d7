"""Check which entries of a loadable file will serve a lookup, and which lookups of a deployment find none."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from runtime.flashinfer.versions import COLD, HOT, FlashInfer, Policy
from sgl_tune.cache.asked import TunedOp
from sgl_tune.cache.loader import Loaded, could_be_tactic, is_written
from sgl_tune.cache.record import KeyParts, Profile, parse_key
from sgl_tune.units import count, some
from sgl_tune.verify.expected import WARM, Expected
from sgl_tune.verify.findings import Finding, Severity, finding

_MISS_SECONDS_EMPTY = 27e-6
_MISS_SECONDS_PER_ENTRY = (2.65e-3 - 27e-6) / 20_000  # measured at 20,000 entries; the scan is linear
_COSTLY_MISS_SECONDS = 250e-6
_TOO_LARGE = 1 << 31
_MOES = """
    bf16 fp8_per_tensor_scale fp8_per_tensor_scale_routed fp8_per_channel_scale fp8_block_scale
    fp4_block_scale mxint4_block_scale
"""
_UNTUNED = "nothing to do: neither the server nor sgl-tune tunes them"
_FATES = {
    "tuning": "the server tunes these at its start",
    "serving": "nothing ever tunes these, requests of such sizes run on the fallback tactic",
}


class OpRule(NamedTuple):
    """The policy that a server's lookups of an op use, and the tactics that the op's kernels accept."""

    policy: Policy
    tactic: Literal["index", "pair", "any"]  # a pair is a tile size and an index


OPS: dict[str, OpRule] = {
    "trtllm::fused_moe::gemm1": OpRule(HOT, "index"),
    "trtllm::fused_moe::gemm2": OpRule(HOT, "index"),
    "fp8_gemm": OpRule(HOT, "any"),  # each of its runners has own tactics
    **{f"flashinfer::trtllm_{kind}_moe": OpRule(COLD, "pair") for kind in _MOES.split()},
}


def entry_name(key: str) -> str:
    """Return a short name of an entry for a sentence: the op and its bucket."""
    parts = parse_key(key)
    if parts is None:
        return repr(cut(key))
    return f"{cut(parts.op.rsplit('::', 1)[-1])} bucket {parts.bucket}"


def cut(text: str, length: int = 40) -> str:
    """Shorten a text from a file, because keys and values there may be of any length."""
    return text if len(text) <= length else text[: length - 3] + "..."


def check_entries(
    entries: Mapping[str, Any], loaded: Loaded, reader: FlashInfer, is_known: bool = True
) -> list[Finding]:
    """Return one finding per kind of problem. `is_known`: whether we know the version of the
    FlashInfer that reads."""
    problems: dict[str, list[str]] = defaultdict(list)
    for key, value in entries.items():
        for code in _problems(key, value, loaded, reader):
            problems[code].append(key)
    found = [_describe(code, keys, loaded, is_known) for code, keys in problems.items()]
    if not entries:
        found.append(finding("no-entries", "it holds no entry: the server tunes everything"))
    return found + lookup_cost(len(entries))


def _problems(key: str, value: Any, loaded: Loaded, reader: FlashInfer) -> Iterator[str]:
    asked = parse_key(key)
    choice = loaded.entries.get(key)
    if asked is None or asked.has_extras != reader.has_extras:
        yield "key-unreadable"
    elif choice is None:
        yield "cudnn-index"
    else:
        if not is_written(value):
            yield "value-malformed"
        if choice[0] != asked.runner:
            yield "runner-mismatch" if reader.matches_runners else "runner-exchanged"
            return
        rule = OPS.get(asked.op)
        if not _is_usable(choice[1], rule):
            yield "tactic-unusable"
        # An entry without a policy is loaded as hot L2, which is right for the hot ops.
        if rule and reader.keeps_policies and loaded.policies.get(key, HOT) != rule.policy:
            yield "policy-misses"


def _is_usable(tactic: Any, rule: OpRule | None) -> bool:
    if type(tactic) is int:
        return -1 <= tactic < _TOO_LARGE
    if rule is None or rule.tactic == "any":
        return could_be_tactic(tactic)
    return rule.tactic == "pair" and isinstance(tactic, tuple) and all(type(item) is int for item in tactic)


def _describe(code: str, keys: list[str], loaded: Loaded, is_known: bool) -> Finding:
    sentence, remedy = _SENTENCES[code], ""
    if not is_known:
        sentence, remedy = _OF_AN_UNKNOWN_READER.get(code, (sentence, ""))
    if code == "tactic-unusable":
        sentence += f", such as {cut(repr(loaded.entries[keys[0]][1]))}"
    names = some([entry_name(key) for key in keys])
    return finding(code, f"{count(len(keys), 'entry')} ({names}): {sentence}", remedy)


_SENTENCES = {
    "tactic-unusable": "the server fails inside the kernel, which cannot take this tactic",
    "policy-misses": "measured under another policy than the server asks for; it tunes there again",
    "runner-mismatch": "the value names another runner than the key, so no lookup accepts it",
    "runner-exchanged": "the value names another runner than the key, and this FlashInfer gives the tactic to"
    " that runner, or to the first one",
    "key-unreadable": "no lookup can ask for this key",
    "value-malformed": "not [runner, tactic, policy], with or without how it was chosen: it is read by"
    " position, or in part",
    "cudnn-index": "a cuDNN plan index, which the loader skips; the server tunes there again",
}
_NEWER = "nothing to do if a server wrote it: a newer sgl-tune may understand it"
_OF_AN_UNKNOWN_READER = {
    "key-unreadable": ("no lookup of the FlashInfers that are known here asks for this key", _NEWER),
    "value-malformed": ("not of a form that the FlashInfers that are known here write", _NEWER),
}


def miss_seconds(entries: int) -> float:
    """Estimate the cost of one lookup that misses, with this many entries loaded."""
    return _MISS_SECONDS_EMPTY + entries * _MISS_SECONDS_PER_ENTRY


def lookup_cost(entries: int) -> list[Finding]:
    seconds = miss_seconds(entries)
    if seconds < _COSTLY_MISS_SECONDS:
        return []
    message = (
        f"{entries} entries make every lookup that misses cost about {seconds * 1e6:.0f} us, an estimate;"
        f" with none it is {_MISS_SECONDS_EMPTY * 1e6:.0f} us"
    )
    return [finding("lookup-cost", message)]


class Coverage:
    """The lookups of one deployment, compared with the table of entries that a file loads as."""

    def __init__(self, wants: Expected) -> None:
        self._wants, self._ops = wants, wants.ops
        self.keys = {key for op in wants.ops for key in op.keys}

    def findings(self, loaded: Loaded, reader: FlashInfer) -> list[Finding]:
        unused = [key for key in loaded.entries if key not in self.keys]
        differing = self._differing_extras(unused)
        rest = [key for key in unused if key not in differing]
        return [
            *self._missing(loaded, reader),
            *_other_options(differing, self._wants.way_out),
            *_unused(rest, len(loaded.entries)),
        ]

    def _missing(self, loaded: Loaded, reader: FlashInfer) -> list[Finding]:
        none = not any(_hits(key, op, loaded, reader) for op in self._ops for key in op.keys)
        found = []
        for asked_by, fate in _FATES.items():
            names = [
                f"{op.op.rsplit('::', 1)[-1]} at {_buckets(buckets)}"
                for op in self._ops
                if (buckets := _missing_buckets(op, asked_by, loaded, reader))
            ]
            if names:
                severity = Severity.ERROR if none else None
                message = f"it lacks {'; '.join(names)}: {fate}"
                way_out = self._wants.way_out
                way_out = way_out if way_out == WARM or asked_by == "tuning" else _UNTUNED
                found.append(finding("keys-missing", message, way_out, severity))
        return found

    def _differing_extras(self, unused: Sequence[str]) -> dict[str, tuple[KeyParts, KeyParts]]:
        """Return the entries with the right op and shapes but other options, from another SGLang or flag."""
        asked = {_shapes(parts): parts for key in self.keys if (parts := parse_key(key))}
        pairs = {key: (parts, asked.get(_shapes(parts))) for key in unused if (parts := parse_key(key))}
        return {key: (parts, wanted) for key, (parts, wanted) in pairs.items() if wanted}


def _shapes(parts: KeyParts) -> tuple[str, str, Profile]:
    return parts.op, parts.runner, parts.profile


def _missing_buckets(op: TunedOp, asked_by: str, loaded: Loaded, reader: FlashInfer) -> list[int]:
    asked = (entry for entry in op.entries if entry.asked_by == asked_by)
    return sorted({entry.bucket for entry in asked if not _hits(entry.key, op, loaded, reader)})


def _hits(key: str, op: TunedOp, loaded: Loaded, reader: FlashInfer) -> bool:
    choice = loaded.entries.get(key)
    if choice is None or (reader.matches_runners and choice[0] != op.runner):
        return False
    return not reader.keeps_policies or loaded.policies.get(key, HOT) == op.policy


def _buckets(buckets: list[int]) -> str:
    if len(buckets) <= 4:
        return ", ".join(map(str, buckets))
    return f"{len(buckets)} buckets from {buckets[0]} to {buckets[-1]}"


def _other_options(differing: Mapping[str, tuple[KeyParts, KeyParts]], way_out: str) -> list[Finding]:
    if not differing:
        return []
    has, asked = next(iter(differing.values()))
    places = [
        f"option {place} of {len(asked.extras)} is {_option(has, place)}, asked {_option(asked, place)}"
        for place in range(1, max(len(has.extras), len(asked.extras)) + 1)
        if _option(has, place) != _option(asked, place)
    ]
    message = f"{count(len(differing), 'entry')} of the right shapes, but {some(places)}"
    return [finding("other-options", message, f"{way_out}: options follow the SGLang version and its flags")]


def _option(parts: KeyParts, place: int) -> str:
    return parts.extras[place - 1] if place <= len(parts.extras) else "absent"


def _unused(keys: Sequence[str], total: int) -> list[Finding]:
    """Return a finding for unused entries. They are harmless, but make each lookup that misses slower."""
    if not keys:
        return []
    cost = (miss_seconds(total) - miss_seconds(total - len(keys))) * 1e6
    message = (
        f"{len(keys)} of {total} entries ({some([entry_name(key) for key in keys])}): nothing this deployment"
        f" asks for; about {cost:.0f} us more for a lookup that misses, an estimate"
    )
    return [finding("unused-entries", message)]
