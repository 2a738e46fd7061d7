"""Judge all nodes of a file while it is read; equal nodes become one row."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.errors import UsageError
from sgl_tune.fleet.judge import NotServing, Planned, Planner, judge, signatures
from sgl_tune.fleet.node import WAY, Line, Node, read_lines
from sgl_tune.fleet.outcome import STATES, ColdStart, Cost, Outcome, State, cost_of
from sgl_tune.units import count

_MOST_KEPT, _MOST_NOTES = 1000, 20


class Alike(NamedTuple):
    """What one row of the table says about its nodes."""

    deployment: str
    machine: str
    outcome: Outcome
    cost: Cost | None

    @property
    def state(self) -> State:
        return self.outcome.state


class Judged(NamedTuple):
    name: str
    line: int
    alike: tuple[Alike, ...]
    shared: frozenset[str]  # digests that must be equal on all nodes of its start


@dataclass
class Survey:
    nodes: list[Judged] = field(default_factory=list)
    problems: list[Line] = field(default_factory=list)
    unread: int = 0  # the number of bad lines, including those not kept
    notes: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()  # flags that the core does not know
    has_reference: bool = False

    @property
    def contents(self) -> int:
        """Return the number of different contents of the files that starts on several nodes compare."""
        return len({node.shared for node in self.nodes if node.shared})

    @property
    def counted(self) -> Counter[State]:
        """Return the number of nodes by the worst outcome of any deployment there."""
        order = list(STATES)
        return Counter(min((one.state for one in node.alike), key=order.index) for node in self.nodes)

    @property
    def rows(self) -> Iterator[tuple[Alike, list[str]]]:
        """Yield the rows, the worst first."""
        found: dict[Alike, list[str]] = {}
        for node in self.nodes:
            for alike in node.alike:
                found.setdefault(alike, []).append(node.name)
        order = list(STATES)
        yield from sorted(found.items(), key=lambda row: (order.index(row[0].state), -len(row[1])))

    def ok(self, strict: bool) -> bool:
        good = all(not one.outcome.bad for node in self.nodes for one in node.alike)
        doubtful = any(one.outcome.faults for node in self.nodes for one in node.alike)
        return good and not self.unread and not (strict and (doubtful or self.contents > 1))

    def verdict(self, ok: bool) -> str:
        states = self.counted
        total = count(len(self.nodes), "node")
        said = [f"{states[state]:,} {says}" for state, says in STATES.items() if states[state]]
        if self.unread:
            said.append(f"{count(self.unread, 'line')} could not be read")
        if self.contents > 1:
            said.append(
                f"{self.contents:,} different contents among them, and the nodes of one start need equal ones"
            )
        said += [*self.asides, "no server was asked"]
        if not self.has_reference:
            said.append("what their stores lack is not known without --target")
        return f"{'good' if ok else 'bad'}: of {total}, {'; '.join(said)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": len(self.nodes),
            "states": {state: self.counted[state] for state in STATES},
            "rows": [
                {
                    "state": alike.state,
                    "deployment": alike.deployment,
                    "machine": alike.machine,
                    "seconds": alike.cost.to_json() if alike.cost else None,
                    "reasons": [fault.to_json() for fault in alike.outcome.faults],
                    "nodes": names,
                }
                for alike, names in self.rows
            ],
            "lines": [{"line": line.number, "problem": line.problem} for line in self.problems],
            "notes": list(self.notes),
        }


def survey(
    path: Path,
    planner: Planner,
    reference: Node | None,
    cold: ColdStart | None,
    advance: Callable[[int], None],
) -> Survey:
    found = Survey(has_reference=bool(reference and reference.holdings))
    seen: dict[tuple[str, object], Judged] = {}
    alike: dict[Alike, Alike] = {}  # 100,000 nodes are of few kinds
    again, tools, as_root = list[str](), set[str](), 0
    for line in read_lines(path):
        advance(line.size)
        node = line.node
        if node is None:
            found.unread += 1
            found.problems += [line] if len(found.problems) < _MOST_KEPT else []
            continue
        identity = (node.name, _identity(node))
        if before := seen.get(identity):
            twice = f"{before.name} again, after line {before.line}: this one counts"
            again.append(f"line {line.number}: {twice}")
        tools |= {node.tool[:20]} if node.tool and len(tools) < _MOST_NOTES else set()
        as_root += node.holdings is not None and node.holdings.user == "root"
        judged = _judged(line.number, node, planner, reference, cold)
        seen[identity] = judged._replace(alike=tuple(alike.setdefault(one, one) for one in judged.alike))
    if not seen:
        first = found.problems[0] if found.problems else None
        why = f"line {first.number}: {first.problem}" if first else "it is empty"
        raise UsageError(f"--fleet {path} has no node: {why}", WAY)
    if planner.refusal and not isinstance(planner.refusal, NotServing):
        raise planner.refusal
    found.nodes = _apart(list(seen.values()))
    asides = (plan.deployment.not_modelled for plan in planner.plans)
    found.asides = tuple(dict.fromkeys(filter(None, asides)))
    found.notes = tuple(_notes(again, tools, as_root))
    return found


def _notes(again: Sequence[str], tools: set[str], as_root: int) -> Iterator[str]:
    yield from again[:_MOST_NOTES]
    if len(again) > _MOST_NOTES:
        yield f"{len(again) - _MOST_NOTES:,} more lines of machines that are there twice"
    if len(tools) > 1:
        yield f"written by sgl-tune {', '.join(sorted(tools))}"
    if as_root:
        says = "written as root: whether the server's user can read and save there is not known"
        yield f"{count(as_root, 'line')} {says}"


def _identity(node: Node) -> object:
    """Return what identifies a machine: its GPUs, because machines may share a host name."""
    if node.gpus:
        return frozenset(gpu.uuid for gpu in node.gpus)
    return sha256(repr(node).encode("utf-8", "backslashreplace")).digest()


def _judged(
    number: int, node: Node, planner: Planner, reference: Node | None, cold: ColdStart | None
) -> Judged:
    outcomes = list(judge(node, planner, reference))
    alike = tuple(
        Alike(
            planned.name if planned else "",
            _machine(node, planned),
            outcome,
            cost_of(outcome.bad, planned.plan.deployment.arch, cold) if planned else None,
        )
        for planned, outcome in outcomes
    )
    shared = frozenset[str]().union(*(signatures(one, node) for one, _ in outcomes if one))
    return Judged(node.name or f"line {number}", number, alike, shared)


def _machine(node: Node, planned: Planned | None) -> str:
    gpus = Counter(gpu.name for gpu in node.gpus)
    parts = [f"{number} x {name}" for name, number in gpus.items()] or ["no GPU seen"]
    if planned:
        given = planned.plan.deployment.inputs
        parts.append(f"SGLang {given.sglang_version}, FlashInfer {given.flashinfer_version}")
    return ", ".join(parts)


def _apart(nodes: list[Judged]) -> list[Judged]:
    """Add the line numbers to the names of machines that share a name."""
    times = Counter(node.name for node in nodes)
    return [
        node._replace(name=f"{node.name} (line {node.line})") if times[node.name] > 1 else node
        for node in nodes
    ]
