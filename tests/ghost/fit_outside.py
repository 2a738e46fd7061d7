"""Fits the table of memory outside torch to measured starts and to what the ghost counted in them."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from runtime.ghost.outside import ALIKE, COMMUNICATOR, PEERS, Outside
from runtime.record.record import Record
from runtime.sglang.inside.outside import COUNTED
from tests.ghost.real_starts import RESULTS, RealStart

OBSERVED = RESULTS / "ghost_outside.json"
GRANULE = 2 << 20
BEFORE_CUBLAS = ("weights", "draft weights", "kv pool", "draft kv pool")
CUBLAS = "attention backend"
GRAPHS = ("prefill graphs", "decode graphs")
FULLEST = "fullest"  # of the phase "kv pool"
FORWARD = ("eager", "autotune", *GRAPHS)
Counts = dict[str, int]


@dataclass(frozen=True)
class Step:
    """A phase of a measured start. Each figure is the growth in it, but for `code`, which is the sum so far.

    `own`: what the ghost itself counted outside torch without any table, as SGLang's own buffers.
    """

    phase: str
    measured: int
    own: int
    code: int
    counts: Counts

    @property
    def grown(self) -> int:
        return self.measured - self.own

    @property
    def graphs(self) -> int:
        """The number of graphs and of further streams in them."""
        return self.counts["graphs"] + self.counts["branches"]


@dataclass(frozen=True)
class Seen:
    """A start. `fullest` is how much more than the rank read the fullest one held at the pool's sizing."""

    start: RealStart
    steps: tuple[Step, ...]
    fullest: int | None = None

    def step(self, phase: str) -> Step | None:
        return next((step for step in self.steps if step.phase == phase), None)

    def until(self, phase: str) -> int:
        """Return the growth from the first phase to the end of this one."""
        place = [step.phase for step in self.steps].index(phase)
        return sum(step.grown for step in self.steps[: place + 1])


def seen(start: RealStart, observed: dict[str, Counts]) -> Seen:
    """Return the start's measured phases that the ghost reached too, in order."""
    pool = observed.get("kv pool", {})
    steps, before, measured = [], dict[str, int](), 0
    for phase, outside in start.outside.items():
        now = observed.get(phase)
        if now is None:
            continue
        grown = {name: value - before.get(name, 0) for name, value in now.items() if name != FULLEST}
        steps.append(Step(phase, outside - measured, grown["own"], now["code"], grown))
        before, measured = now, outside
    return Seen(start, tuple(steps), pool.get(FULLEST))


def observations(path: Path = OBSERVED) -> dict[str, dict[str, Counts]]:
    """Return the ghost's counts at the end of each phase of each start; see `judge --observe`."""
    starts: dict[str, dict[str, Counts]] = json.loads(path.read_text())["starts"]
    nothing = dict.fromkeys(("own", *COUNTED), 0)
    return {
        name: {phase: {**nothing, **counts} for phase, counts in phases.items()}
        for name, phases in starts.items()
    }


def write_observations(found: dict[str, dict[str, Counts]], path: Path = OBSERVED) -> None:
    """Write only counts that are not 0, one line per phase."""
    lines = []
    for name, phases in sorted(found.items()):
        told = [f"   {json.dumps(phase)}: {json.dumps(_told(counts))}" for phase, counts in phases.items()]
        lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(told) + "\n  }")
    head = json.dumps("python -m tests.ghost.judge --observe")
    path.write_text(f'{{\n "command": {head},\n "starts": {{\n' + ",\n".join(lines) + "\n }\n}\n")


def _told(counts: Counts) -> Counts:
    return {name: value for name, value in counts.items() if value and name != "charged"}


def fitted(known: Sequence[Seen], table: Outside) -> Outside:
    """Return the table with every number that these starts determine; the others stay."""
    alone = [one for one in known if one.start.gpus == 1]
    numbers = _before_graphs(alone)
    trial = table.with_numbers(**numbers)
    numbers |= _of_graphs(alone, trial)
    trial = table.with_numbers(**numbers)
    numbers |= _of_modules(alone, trial)
    trial = table.with_numbers(**numbers)
    numbers |= _of_messages([one for one in known if one.start.gpus > 1], trial)
    numbers |= _of_peers(known)
    return table.with_numbers(**numbers)


def without(known: Sequence[Seen], start: RealStart) -> list[Seen]:
    """Return the starts of other models."""
    return [one for one in known if one.start.family != start.family]


def _before_graphs(alone: Sequence[Seen]) -> dict[str, int]:
    context = round(median(one.until("communicator") for one in alone))
    weights = _points(alone, BEFORE_CUBLAS, context)
    libraries, room = _boundary(weights)
    cublas, edge = _boundary(_points(alone, (CUBLAS,), context))
    return {
        "context": context,
        "libraries": libraries,
        "room": room,
        "cublas": cublas - libraries - GRANULE,
        "cublas_code": room + GRANULE - edge,
    }


def _points(alone: Sequence[Seen], phases: Iterable[str], context: int) -> list[tuple[int, int]]:
    """Return the code so far, and the growth so far beyond the context."""
    found = [(one, step) for one in alone for phase in phases if (step := one.step(phase))]
    return [(step.code, one.until(step.phase) - context) for one, step in found]


def _boundary(points: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the lowest growth, and the code at which the next granule was taken."""
    lowest = min(grown for _, grown in points)
    below = max(code for code, grown in points if grown == lowest)
    above = min((code for code, grown in points if grown > lowest), default=below + GRANULE)
    return lowest, (below + above) // 2


def _of_graphs(alone: Sequence[Seen], table: Outside) -> dict[str, int]:
    steps = [step for one in alone for phase in GRAPHS if (step := one.step(phase)) and step.graphs]
    steps = [step for step in steps if not step.counts["modules"]]
    graph, node = _least_squares(
        [(step.graphs, step.counts["nodes"], step.grown - _code(step, table)) for step in steps]
    )
    return {"graph": graph, "node": node}


def _code(step: Step, table: Outside) -> int:
    """Return the granules of code in this step."""
    numbers = table.numbers
    base = step.code + numbers["cublas_code"].bytes - numbers["room"].bytes
    return (base // GRANULE - (base - step.counts["code"]) // GRANULE) * GRANULE


def _graphs(step: Step, table: Outside) -> int:
    numbers = table.numbers
    return step.graphs * numbers["graph"].bytes + step.counts["nodes"] * numbers["node"].bytes


def _of_modules(alone: Sequence[Seen], table: Outside) -> dict[str, int]:
    steps = [step for one in alone for step in one.steps if step.counts["modules"]]
    grown = [step.grown - _graphs(step, table) - _code(step, table) for step in steps]
    return {"module": round(median(grown))} if grown else {}


def _of_messages(several: Sequence[Seen], table: Outside) -> dict[str, int]:
    """Fit communicators: the first one is opened before the weights, a later one in a forward."""
    if not several:
        return {}
    later = _by_ranks(several, FORWARD, lambda step: step.grown - _graphs(step, table))
    fixed = table.numbers["context"].bytes + table.numbers["libraries"].bytes
    first = _by_ranks(several, ("communicator",), lambda step: step.grown - fixed)
    numbers = {f"{COMMUNICATOR}{ranks}": one for ranks, one in later.items()}
    if both := later.keys() & first.keys():
        beyond = numbers["first"] = round(median(first[ranks] - later[ranks] for ranks in both))
        # the first one decides KV tokens and varies by 64 KiB; a later one varies by megabytes
        numbers |= {f"{COMMUNICATOR}{ranks}": one - beyond for ranks, one in first.items()}
    known = table.with_numbers(**numbers)
    steps = [step for one in several for phase in GRAPHS if (step := one.step(phase))]
    steps = [step for step in steps if step.counts["messages"] and not _opened(step)]
    rows = [
        (step.counts["message_graphs"], step.counts["messages"], step.grown - _graphs(step, known))
        for step in steps
    ]
    if len(rows) > 1:
        numbers["message_graph"], numbers["message"] = _least_squares(rows)
    return numbers


def _of_peers(known: Sequence[Seen]) -> dict[str, int]:
    """By number of ranks, in granules: `fullest` knows a token's bytes but for what the allocator adds."""
    found: dict[int, list[int]] = {}
    for one in known:
        if one.fullest is not None:
            found.setdefault(one.start.gpus, []).append(one.fullest)
    return {f"{PEERS}{ranks}": round(median(all) / GRANULE) * GRANULE for ranks, all in found.items()}


def fullest(start: RealStart, record: Record, charged: int) -> int | None:
    """What the fullest rank held beyond rank 0, by the KV tokens that the real start lacks.

    `charged`: what the ghost took it to hold.
    """
    pool, weights, sizes = record.phase("kv pool"), record.phase("weights"), record.sizes
    if start.gpus <= ALIKE or not start.kv_tokens or sizes is None or pool is None or weights is None:
        return None
    per_token = (pool.allocated - pool.allocated_before) / sizes.kv_tokens
    lacking = (sizes.kv_tokens - start.kv_tokens) * per_token / sizes.mem_fraction_static
    return charged + round(lacking) + weights.outside - start.outside["weights"]


def _opened(step: Step) -> dict[int, int]:
    named = {ranks: step.counts[f"communicators_{ranks}"] for ranks in range(2, 9)}
    return {ranks: count for ranks, count in named.items() if count}


def _by_ranks(several: Sequence[Seen], phases: Iterable[str], of: Callable[[Step], int]) -> dict[int, int]:
    """By number of ranks, what one communicator took in the steps that opened nothing else."""
    found: dict[int, list[int]] = {}
    for one in several:
        for phase in phases:
            step = one.step(phase)
            opened = _opened(step) if step else {}
            if step and len(opened) == 1 and not step.counts["messages"]:
                ((ranks, count),) = opened.items()
                found.setdefault(ranks, []).append(of(step) // count)
    return {ranks: round(median(grown)) for ranks, grown in found.items()}


def _least_squares(rows: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Return x and y of x * a + y * b = c, neither below 0."""
    aa = sum(a * a for a, _, _ in rows)
    bb = sum(b * b for _, b, _ in rows)
    ab = sum(a * b for a, b, _ in rows)
    ac = sum(a * c for a, _, c in rows)
    bc = sum(b * c for _, b, c in rows)
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return (ac // aa if aa else 0), 0
    x, y = (ac * bb - bc * ab) / determinant, (bc * aa - ac * ab) / determinant
    if x < 0:
        return 0, round(bc / bb)
    return (round(x), round(y)) if y > 0 else (round(ac / aa), 0)
