"""Random tiny models over random mixes of tp, dp, ep and pp, with uneven and empty ranks: equal, or refused.

python -m tests.runtime.random_layouts --family qwen3_moe --count 30 --seed 5
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from runtime.forward.comm import DistributedCommunicator
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.stage_ends import ends_of_stages
from tests.runtime.families import MOE_FAMILIES, TINY
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.random_models import STEPS, Outcome, arguments, compare, draw, report
from tests.runtime.ranks import Ranks, started

_SHORTEST, _LONGEST, _MOST_TEXTS = STEPS + 1, 28, 6
# Of prefills beyond the range that a long rope begins with: within it, angles follow from what a batch holds.
_STRETCHED = STEPS + 10


@dataclass(frozen=True, slots=True)
class Layout:
    parallel: ParallelConfig
    a2a: str
    lengths: tuple[
        int, ...
    ]  # in turns of the attention-DP ranks: with fewer texts than ranks, some have none

    def told(self) -> dict[str, Any]:
        one = self.parallel
        sizes = {"tp": one.tp, "pp": one.pp, "dp": one.dp, "ep": one.ep}
        return {"layout": sizes, "a2a": self.a2a, "lengths": self.lengths}


def draw_layout(family: str, told: Mapping[str, Any], dice: random.Random) -> Layout:
    pp, tp = dice.choice([(1, 2), (1, 4), (2, 1), (2, 2), (1, 4), (2, 2)])
    dp = dice.choice([size for size in (1, 2, 4) if tp % size == 0])
    ep = dice.choice([size for size in (1, 2, 4) if tp % size == 0]) if family in MOE_FAMILIES else 1
    a2a = dice.choice(("none", "flashinfer")) if 1 < tp == ep == dp else "none"
    count = dice.randint(1, _MOST_TEXTS)
    shortest = _STRETCHED if "longrope" in str(told) else _SHORTEST
    lengths = tuple(dice.randint(shortest, _LONGEST) for _ in range(count))
    parallel = ParallelConfig(tp=tp, pp=pp, dp=dp, ep=ep, enable_dp_attention=dp > 1)
    return Layout(parallel, a2a, lengths)


def _loaded(comm: DistributedCommunicator, folder: Path, layout: Layout) -> Generation:
    runtime = make_runtime(prefill_tokens=256, max_running_requests=8, moe_a2a_backend=layout.a2a)
    return Generation(folder, layout.parallel, runtime, comm)


def _refuses(comm: DistributedCommunicator, folder: Path, layout: Layout) -> str | None:
    try:
        _loaded(comm, folder, layout)
    except ConfigError as error:
        return str(error)
    return None


def _rows(
    comm: DistributedCommunicator, folder: Path, layout: Layout, texts: list[list[int]]
) -> dict[int, Any]:
    rows = _loaded(comm, folder, layout).run(texts, STEPS)
    return {number: torch.stack(own).numpy() for number, own in rows.items() if own}


def _check_served(layout: Layout, folder: Path) -> None:
    """What a whole server is refused for, and its layers are not."""
    one = layout.parallel
    flags = ServerFlags(gpu="H200", model_path=str(folder), tp=one.tp, pp=one.pp, ep=one.ep, dp=one.dp)
    flags = replace(flags, enable_dp_attention=one.enable_dp_attention, dtype="bfloat16")
    if layout.a2a != "none":
        flags = replace(flags, moe_a2a_backend=layout.a2a, moe_runner_backend="flashinfer_cutlass")
    try:
        server = resolve_deployment(flags, environ={})
    except UsageError as error:
        raise ConfigError(error.message) from error
    if server.shape.unknown:
        raise ConfigError(server.shape.unknown)
    for why in ends_of_stages(server):
        raise ConfigError(why)


def _on_ranks(
    ranks: Ranks, layout: Layout, folder: Path, texts: list[list[int]]
) -> dict[int, list[torch.Tensor]]:
    """Every rank of a text's group has the same rows for it. One may refuse its layers alone: asked first, as
    the others would wait for it."""
    _check_served(layout, folder)
    for refused in ranks.run(layout.parallel, _refuses, folder, layout):
        if refused is not None:
            raise ConfigError(refused)
    rows: dict[int, list[torch.Tensor]] = {}
    for one in ranks.run(layout.parallel, _rows, folder, layout, texts):
        for number, own in one.items():
            mine = list(torch.from_numpy(own))
            assert len(mine) in (1, STEPS + 1)
            assert number not in rows or torch.equal(torch.stack(rows[number]), torch.stack(mine))
            rows[number] = mine
    assert set(rows) == set(range(len(texts))), "a text without an answer"
    return rows


def outcomes(ranks: Ranks, family: str, count: int, seed: int) -> Iterator[Outcome]:
    dice = random.Random(f"layouts of {family} {seed}")
    for _ in range(count):
        told = draw(family, dice)
        layout = draw_layout(family, told, dice)
        with tempfile.TemporaryDirectory() as folder:
            serve = partial(_on_ranks, ranks, layout)
            try:
                found = compare(family, told, Path(folder), layout.lengths, serve)
            except AssertionError as error:  # a rank that failed, or gave no answer in time
                found = Outcome(told, f"DIFFERENT: {error}")
        yield replace(found, told={**found.told, **layout.told()})


def main() -> int:
    asked = arguments(__doc__)
    with started(4) as ranks:
        return report(partial(outcomes, ranks), asked.family or TINY, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
