"""All rows, after everything is settled: SGLang's checks look at resolved arguments."""

from __future__ import annotations

from functools import lru_cache

from runtime.server.checks import (
    adapters,
    attention,
    budgets,
    caches,
    deepseek_v4,
    disaggregation,
    experts,
    families,
    muse_spark,
    parallelism,
    serving,
    sharding,
    speculation,
    states,
    unified_memory,
)
from runtime.server.checks.row import Refusal, arguments_in, told
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.releases import Release

ROWS = (
    *parallelism.ROWS,
    *disaggregation.ROWS,
    *attention.ROWS,
    *states.ROWS,
    *caches.ROWS,
    *sharding.ROWS,
    *unified_memory.ROWS,
    *experts.ROWS,
    *budgets.ROWS,
    *speculation.ROWS,
    *adapters.ROWS,
    *deepseek_v4.ROWS,
    *families.ROWS,
    *muse_spark.ROWS,
    *serving.ROWS,
)
_BEFORE_BLOCKS = (
    *(*disaggregation.ROWS, *states.ROWS, *caches.ROWS, *sharding.ROWS, *unified_memory.ROWS),
    *serving.ROWS,
)


def check_before_blocks(c: Choices) -> None:
    """Of what a diffusion LLM turns off, which SGLang asks before."""
    if c.dllm_algorithm is not None:
        _check(c, tuple(row for row in _BEFORE_BLOCKS if row.stands_in(c.release)))


def check_refusals(c: Choices) -> None:
    _check(c, _standing(c.release))


def _check(c: Choices, rows: tuple[Refusal, ...]) -> None:
    for row in rows:
        if row.when(c):
            said = f"SGLang {c.release.version} refuses this: {told(row.said, c)}"
            raise ConfigError(said, row.remedy(c), tries=arguments_in(row.said))


@lru_cache
def _standing(release: Release) -> tuple[Refusal, ...]:
    return tuple(row for row in ROWS if row.stands_in(release))
