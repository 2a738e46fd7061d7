"""Our answers beside SGLang's: every field of the dry run's `server`, and every kind of disagreement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.commands import Command

FIELDS = (
    *("tunes", "key", "config_class", "dtype", "quantization", "kv_cache_dtype", "page_size"),
    *("attention_backend", "moe_runner_backend", "moe_a2a_backend", "ep_size", "attn_dp_size"),
    *("context_length", "chunked_prefill_size", "mem_fraction_static", "max_running_requests"),
    *("dummy_batch_rows", "decode_graphs", "prefill_graphs", "speculative", "draft"),
)
_NOT_ALWAYS = ("sparse_kernels",)  # recorded: of what older records have no word
EXAMPLES = 3
CLOSE = {"mem_fraction_static": 0.0005}


@dataclass
class Tally:
    """`apart`: kind of disagreement -> the commands, each with both answers."""

    asked: int = 0
    both_answer: int = 0
    both_refuse: int = 0
    unanswered: list[str] = field(default_factory=list)
    agreed: Counter[str] = field(default_factory=Counter)
    apart: dict[str, list[tuple[Command, Any, Any]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, command: Command, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        self.asked += 1
        if "failed" in theirs:
            self.unanswered.append(f"{command.release} {command.gpu} {command.model}: {theirs['failed']}")
        elif "refused" in ours and "refused" in theirs:
            self.both_refuse += 1
        elif "refused" in theirs:
            self.apart["refused there, planned here"].append((command, "planned", theirs["refused"]))
        elif "refused" in ours:
            self.apart["refused here, started there"].append((command, ours["refused"], "started"))
        else:
            self.both_answer += 1
            self._fields(command, ours["server"], theirs["server"])

    def _fields(self, command: Command, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        for name in (*FIELDS, *(one for one in _NOT_ALWAYS if one in theirs)):
            if same(name, ours.get(name), theirs.get(name)):
                self.agreed[name] += 1
            else:
                self.apart[name].append((command, ours.get(name), theirs.get(name)))

    def rate(self, name: str) -> float:
        return self.agreed[name] / self.both_answer if self.both_answer else 1.0


def same(name: str, ours: Any, theirs: Any) -> bool:
    if name in CLOSE and ours is not None and theirs is not None:
        return bool(abs(ours - theirs) < CLOSE[name])
    if name == "draft" and ours is not None and theirs is not None:
        return bool(ours["tunes"] == theirs["tunes"] and ours["key"] == theirs["key"])
    if name == "sparse_kernels" and ours is None:
        return None in theirs
    return bool(ours == theirs)


def tally(pairs: Iterable[tuple[Command, dict[str, Any], dict[str, Any]]]) -> Tally:
    found = Tally()
    for command, ours, theirs in pairs:
        found.add(command, ours, theirs)
    return found


def page(found: Tally) -> Iterator[str]:
    """Rates first, then each kind with examples."""
    yield f"{found.asked} commands: {found.both_answer} answered by both, {found.both_refuse} refused by both"
    for name in FIELDS:
        yield f"  {name:<24}{100 * found.rate(name):7.2f} %   {len(found.apart[name])} apart"
    for kind, examples in sorted(found.apart.items(), key=lambda item: -len(item[1])):
        if examples:
            yield f"\n{kind}: {len(examples)}"
            yield from _kinds(kind, examples)
    if found.unanswered:
        yield f"\nthe oracle could not ask: {len(found.unanswered)}"
        yield from (f"  {text}" for text in found.unanswered[:EXAMPLES])


def _kinds(kind: str, examples: list[tuple[Command, Any, Any]]) -> Iterator[str]:
    """Grouped by the two answers: the same cause mostly gives the same pair."""
    groups: dict[tuple[str, str], list[Command]] = defaultdict(list)
    for command, ours, theirs in examples:
        groups[_short(ours), _short(theirs)].append(command)
    for (ours, theirs), commands in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield f"  {len(commands)} x ours {ours}, theirs {theirs}"
        for command in commands[:EXAMPLES]:
            yield f"      {command.release} {command.gpu}: {' '.join(command.argv)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:120]} ... {text[-60:]}"
