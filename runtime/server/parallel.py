"""Which rank is what: SGLang's rank arithmetic and groups, without a process group in sight.

Ranks are numbered stage by stage (`rank = pp_rank * tp + tp_rank`). Within a stage the attention-TP ranks of
one DP group are neighbours, and so are the MoE-TP ranks of one expert shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig

GROUP_NAMES = ("world", "tp", "pp", "attn_tp", "attn_dp", "moe_tp", "moe_ep")


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Where one rank stands in every group. `dp_rank` is the DP-attention rank, 0 without it."""

    rank: int
    tp_rank: int
    pp_rank: int
    attn_tp_rank: int
    attn_dp_rank: int
    moe_tp_rank: int
    moe_ep_rank: int
    parallel: ParallelConfig

    @property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        return _groups(self.parallel, self.rank)

    def group(self, name: str) -> tuple[int, ...]:
        return self.groups[name]


def rank_layout(parallel: ParallelConfig, rank: int) -> RankLayout:
    if not 0 <= rank < parallel.world_size:
        raise ConfigError(f"rank {rank} is not in 0..{parallel.world_size - 1}")
    pp_rank, tp_rank = divmod(rank, parallel.tp)
    attn_dp_rank, attn_tp_rank = divmod(tp_rank, parallel.attn_tp)
    moe_ep_rank, moe_tp_rank = divmod(tp_rank, parallel.moe_tp)
    return RankLayout(
        rank=rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        attn_tp_rank=attn_tp_rank,
        attn_dp_rank=attn_dp_rank,
        moe_tp_rank=moe_tp_rank,
        moe_ep_rank=moe_ep_rank,
        parallel=parallel,
    )


@lru_cache(maxsize=256)
def _groups(parallel: ParallelConfig, rank: int) -> Mapping[str, tuple[int, ...]]:
    """As long as the world, so only for who asks: a plan of a thousand ranks looks at none."""
    at = rank_layout(parallel, rank)
    stage = range(at.pp_rank * parallel.tp, (at.pp_rank + 1) * parallel.tp)
    return {
        "world": tuple(range(parallel.world_size)),
        "tp": tuple(stage),
        "pp": tuple(range(at.tp_rank, parallel.world_size, parallel.tp)),
        "attn_tp": tuple(r for r in stage if (r % parallel.tp) // parallel.attn_tp == at.attn_dp_rank),
        "attn_dp": tuple(r for r in stage if r % parallel.attn_tp == at.attn_tp_rank),
        "moe_tp": tuple(r for r in stage if (r % parallel.tp) // parallel.moe_tp == at.moe_ep_rank),
        "moe_ep": tuple(r for r in stage if r % parallel.moe_tp == at.moe_tp_rank),
    }


def node_ranks(parallel: ParallelConfig, node_rank: int | None = None) -> range:
    """The ranks whose processes (and cache files) live on one node."""
    node = parallel.node_rank if node_rank is None else node_rank
    per_node = parallel.world_size // parallel.nnodes
    return range(node * per_node, (node + 1) * per_node)


def stage_layers(num_layers: int, parallel: ParallelConfig, pp_rank: int) -> range:
    """The layers of one pipeline stage; a remainder goes to the last stages, one each."""
    base, extra = divmod(num_layers, parallel.pp)
    longer = max(0, pp_rank - (parallel.pp - extra))
    start = base * pp_rank + longer
    return range(start, start + base + (pp_rank >= parallel.pp - extra))


def check_stages(num_layers: int, parallel: ParallelConfig) -> None:
    if parallel.pp > num_layers:
        raise ConfigError(f"--pp {parallel.pp}: a stage needs a layer, and the model has {num_layers}")
