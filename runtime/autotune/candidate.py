"""The question of a search, and its possible answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flashinfer.autotuner import OptimizationProfile, TunableRunner, TuningConfig

from runtime.flashinfer.inside.lookups import varying_size


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `choose_one`, with the configuration that the active contexts give it."""

    op: str
    runners: Sequence[TunableRunner]
    config: TuningConfig
    inputs: list[Any]
    kwargs: dict[str, Any]

    def bucket(self, profile: OptimizationProfile) -> int:
        return varying_size(self.config, profile.get_opt_shapes())

    def where(self, profile: OptimizationProfile) -> str:
        return f"{self.op} at bucket {self.bucket(profile)}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A runner's number, and a tactic as an entry of the cache file holds it."""

    runner: int
    tactic: Any


# The tactic that runs if nothing was tuned.
DEFAULT = Candidate(0, -1)
