"""Cache files damaged at random, reproducibly: in bytes, JSON structure, values and environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from runtime.flashinfer.versions import flashinfer_of, number
from tests.sgl_tune.cache.corpus import COLD, HOT, build_chosen, build_corpus, moe_entries, moe_key, nested

BUCKETS = (1, 16, 8192)
_CHOSEN_SINCE = (0, 7, 4)
SCALARS = (
    None, True, False, 0, -1, 7, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "F", "Foo",
    "unknown", "None", "*", "MoERunner", "CudnnFp4GemmRunner", "\ud800", "é\0",
)  # fmt: skip
TEXTS = (
    b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"'x'", b'"\\ud800"', b'"\\x"', b"tru",
    b"9" * 4300, b"9" * 4301,
)  # fmt: skip
DEEP = (nested(150), nested(2000), b'{"a":' * 150 + b"1" + b"}" * 150)
BYTES = (b"\0", b"\xff", b"\xef\xbb\xbf", "é".encode(), b"\r\n", b"{", b"}", b'"', b",", b"\\", b"[")


def mutated_files(
    count: int, seed: int, target: Mapping[str, str], mutations: Sequence[Mutation] | None = None
) -> Iterator[tuple[str, bytes]]:
    """`count` files: the corpus first, then one to three mutations of its members."""
    random = Random(seed)
    corpus = build_corpus(dict(target), moe_entries(BUCKETS), flashinfer_of(target["flashinfer_version"]))
    if number(target["flashinfer_version"]) >= _CHOSEN_SINCE:
        corpus |= build_chosen(dict(target), moe_entries(BUCKETS))
    shallow = [case for case in corpus.values() if b"[[[[" not in case.raw]  # deep ones are slow to write
    whole = [case.raw for case in shallow if case.loads == "loaded"]
    damaged = [case.raw for case in shallow if case.loads != "loaded"]
    yield from list((name, case.raw) for name, case in corpus.items())[:count]
    for place in range(count - len(corpus)):
        raw, names = random.choice(whole if random.random() < 0.7 else damaged), []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            mutate = random.choice(mutations or MUTATIONS)
            raw = mutate(raw, random, target)
            names.append(mutate.__name__.removeprefix("_"))
        yield f"{place} {'+'.join(names)}", raw


def _json_value(random: Random, depth: int = 3) -> Any:
    kind = random.random()
    if depth == 0 or kind < 0.5:
        return random.choice(SCALARS)
    items = [_json_value(random, depth - 1) for _ in range(random.randrange(4))]
    if kind < 0.8:
        return items
    return {random.choice(("0", "1", "runner", "a", "")): item for item in items}


def _bytes(raw: bytes, random: Random, target: Mapping[str, str]) -> bytes:
    at = random.randrange(len(raw) + 1)
    to = min(len(raw), at + random.choice((0, 1, 1, 2, 8, 64)))
    fill = random.choice((b"", bytes([random.randrange(256)]), random.choice(BYTES), raw[at:to] * 2))
    return raw[:at] + fill + raw[to:]


def _cut(raw: bytes, random: Random, target: Mapping[str, str]) -> bytes:
    at = random.randrange(len(raw) + 1)
    return raw[:at] if random.random() < 0.7 else raw[at:]


def _token(raw: bytes, random: Random, target: Mapping[str, str]) -> bytes:
    """A scalar somewhere in the text becomes some other text."""
    lines = raw.split(b"\n")
    spots = [index for index, line in enumerate(lines) if b": " in line or line[-1:] in b",0123456789"]
    if not spots:
        return raw
    at = random.choice(spots)
    head, colon, _ = lines[at].rpartition(b": ")
    comma = b"," if lines[at].endswith(b",") else b""
    text = random.choice(DEEP) if random.random() < 0.05 else random.choice(TEXTS)
    lines[at] = head + colon + text + comma
    return b"\n".join(lines)


def _on_document(change: Callable[[Any, Random, Mapping[str, str]], Any]) -> Callable[..., bytes]:
    """Lift a change of the parsed document to bytes; what does not parse is left alone."""

    def mutate(raw: bytes, random: Random, target: Mapping[str, str]) -> bytes:
        try:
            document = json.loads(raw.decode())
        except (ValueError, RecursionError):
            return raw
        if change is _anywhere or isinstance(document, dict):
            document = change(document, random, target)
        return json.dumps(document, indent=random.choice((None, 2))).encode()

    mutate.__name__ = change.__name__
    return mutate


def _anywhere(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    """Walk down a random path and replace, remove or add something there."""
    node = document
    while isinstance(node, (dict, list)) and node:
        where = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if random.random() < 0.4 or not isinstance(node[where], (dict, list)):
            if random.random() < 0.25:
                del node[where]
            else:
                node[where] = _json_value(random)
            return document
        node = node[where]
    return _json_value(random)


def _value(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    key = random.choice([*(k for k in document if not k.startswith("_")), moe_key(64), "junk", ""])
    runner = random.choice(("MoERunner", "CudnnFp4GemmRunner", "Cudnn", "OtherRunner", _json_value(random)))
    tactic = random.choice((5, -1, True, 0, [1, [2, 3]], _json_value(random)))
    value = [runner, tactic, random.choice((HOT, COLD, [], _json_value(random))), 4]
    document[key] = value[: random.randrange(5)] if random.random() < 0.8 else _json_value(random)
    return document


def _environment(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    metadata = document.get("_metadata")
    if not isinstance(metadata, dict) or random.random() < 0.1:
        document["_metadata"] = _json_value(random)
        return document
    field = random.choice([*target, "driver"])
    values = (target.get(field), "unknown", "None", None, "*", "9.9", _json_value(random))
    metadata[field] = random.choice(values)
    if random.random() < 0.2:
        del metadata[field]
    return document


def _member(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    member = random.choice(("_records", "_generation", "_metadata", "_comment"))
    if random.random() < 0.2:
        document.pop(member, None)
    else:
        document[member] = random.choice(({}, {"megamoe": {"a": [1]}}, _json_value(random)))
    return document


def _shuffled(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    members = list(document.items())
    random.shuffle(members)
    return dict(members)


def _dropped(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    entries = [key for key in document if key.startswith("(")]
    for key in random.sample(entries, random.randrange(len(entries) + 1)):
        del document[key]
    return document


def _huge(document: Any, random: Random, target: Mapping[str, str]) -> Any:
    entries = [key for key in document if key.startswith("(")]
    if entries:
        number = random.choice((2**31 - 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -1e308))
        document[random.choice(entries)] = ["MoERunner", random.choice((number, [number])), HOT]
    return document


def _repeated(raw: bytes, random: Random, target: Mapping[str, str]) -> bytes:
    """An entry stands there twice, with another value in front of the others or behind them."""
    key = json.dumps(moe_key(random.choice(BUCKETS))).encode()
    value = json.dumps(
        random.choice((["MoERunner", 3, HOT], ["Other", 3, HOT], _json_value(random)))
    ).encode()
    if random.random() < 0.5:
        return raw.replace(b"{", b"{" + key + b": " + value + b", ", 1)
    head, brace, tail = raw.rpartition(b"}")
    return head + b", " + key + b": " + value + brace + tail


Mutation = Callable[[bytes, Random, Mapping[str, str]], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    _bytes,
    _cut,
    _token,
    *(_on_document(change) for change in (_anywhere, _anywhere, _value, _value, _value)),
    *(_on_document(change) for change in (_environment, _environment, _member, _shuffled)),
)
MORE = (*MUTATIONS, _repeated, _repeated, *(_on_document(change) for change in (_dropped, _dropped, _huge)))
