"""Where a rank's experts are, as tables on its GPU: srt/eplb. Data, no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.asked import Asked
from runtime.server.deepep import DeepEP
from runtime.server.layer_config import MoEConfig
from runtime.server.releases import Release

_STEPS, _WITHOUT_END = 1000, 128  # of a recorder, and of one that grows


@dataclass(frozen=True, slots=True)
class Placement:
    """`steps`: it keeps of so many how often experts were asked. `counts_own`: of one, its own alone."""

    tells_ranks: bool = False
    steps: int = 0
    counts_own: bool = False

    def tables(self, layers: int, moe: MoEConfig, ranks: int) -> Iterator[tuple[str, str, int]]:
        """Name, dtype and how many values."""
        experts, places = layers * moe.num_experts, layers * moe.places
        yield "places of experts", "int64", experts * moe.places
        yield "experts of places", "int64", places
        yield "how many places experts have", "int64", experts
        if self.tells_ranks:
            yield "places of experts for this rank", "int64", experts
        if self.steps:
            yield "how often experts were asked", "int32", self.steps * places
            yield "how often in a step", "int32", places // (ranks if self.counts_own else 1)


def placement_of(asked: Asked, release: Release, a2a: str, deepep: DeepEP | None) -> Placement | None:
    """Of one whose experts move, or have copies."""
    told, dispatch = asked.others, asked.others.get("ep_dispatch_algorithm")
    elsewhere = told.get("init_expert_location", "trivial") != "trivial"
    if not (elsewhere or dispatch or asked.ep_num_redundant_experts > 0 or records(asked)):
        return None
    if dispatch is None and (asked.enable_eplb or elsewhere):
        dispatch = "dynamic" if a2a == "none" and release.copies_agree else "static"
    iterations = told.get("eplb_rebalance_num_iterations") or _STEPS
    steps = told.get("expert_distribution_recorder_buffer_size") or iterations
    return Placement(
        tells_ranks=dispatch == "static",
        steps=(_WITHOUT_END if steps < 0 else steps) if records(asked) else 0,
        counts_own=deepep is not None and deepep.mode == "low_latency",
    )


def records(asked: Asked) -> bool:
    return asked.enable_eplb or asked.expert_distribution_recorder_mode is not None
