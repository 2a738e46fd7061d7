"""How the ranks of a server share a model, and the groups of each rank, with SGLang's arithmetic.

Ranks are numbered stage by stage (`rank = pp_rank * tp + tp_rank`). Within a stage the attention-TP ranks of
one DP group are neighbours, and so are the MoE-TP ranks of one expert shard.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from runtime.server.bounds import MOST_RANKS, PARALLEL, check_flags
from runtime.server.errors import ConfigError

GROUP_NAMES = ("world", "tp", "pp", "attn_tp", "attn_dp", "moe_tp", "moe_ep")


HeadOver = Literal["all ranks", "a group"]  # the ranks that share the LM head


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """SGLang's sizes. `dp` under DP attention divides `tp`; without it, it counts replicas of the server."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    enable_dp_attention: bool = False
    nnodes: int = 1
    node_rank: int = 0

    def __post_init__(self) -> None:
        check_flags(self, PARALLEL)
        ranks = self.world_size * (1 if self.enable_dp_attention else self.dp)
        if ranks > MOST_RANKS:
            raise ConfigError(f"tp x pp x dp is {ranks}: at most {MOST_RANKS} ranks can be planned for")
        if self.tp % self.ep:
            raise ConfigError(
                f"--ep {self.ep} does not divide --tp {self.tp}: experts are spread over TP ranks"
            )
        if self.enable_dp_attention and self.tp % self.dp:
            raise ConfigError(
                f"--dp {self.dp} does not divide --tp {self.tp}: with --enable-dp-attention each DP group "
                "holds tp/dp ranks; pass --no-enable-dp-attention for separate replicas"
            )
        if self.world_size % self.nnodes:
            raise ConfigError(f"--nnodes {self.nnodes} does not divide tp x pp = {self.world_size} ranks")
        if not 0 <= self.node_rank < self.nnodes:
            raise ConfigError(f"--node-rank {self.node_rank} is not in 0..{self.nnodes - 1}")

    @property
    def world_size(self) -> int:
        return self.tp * self.pp

    @property
    def attn_dp(self) -> int:
        return self.dp if self.enable_dp_attention else 1

    @property
    def attn_tp(self) -> int:
        return self.tp // self.attn_dp

    @property
    def moe_ep(self) -> int:
        return self.ep

    @property
    def gathers_mlp(self) -> bool:
        return self.enable_dp_attention and self.attn_dp > 1

    def gathers_rows(self, moe_a2a_backend: str) -> bool:
        """Whether rows are gathered: an all-to-all needs each attention-TP rank's part of the rows."""
        return self.gathers_mlp or (moe_a2a_backend != "none" and self.tp > 1)

    @property
    def moe_tp(self) -> int:
        return self.tp // self.ep


@dataclass(frozen=True, slots=True)
class RankLayout:
    """The place of one rank in every group. `dp_rank` is the DP-attention rank, or 0 without DP attention."""

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
    """Return the ranks of each group. Computed on demand, because a plan of a thousand ranks needs none."""
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


def node_ranks(parallel: ParallelConfig) -> range:
    """The ranks whose processes and cache files are on the node."""
    per_node = parallel.world_size // parallel.nnodes
    return range(parallel.node_rank * per_node, (parallel.node_rank + 1) * per_node)


def stage_layers(num_layers: int, parallel: ParallelConfig, pp_rank: int) -> range:
    """The layers of one pipeline stage. If they do not divide evenly, the last stages have one more each."""
    base, extra = divmod(num_layers, parallel.pp)
    longer = max(0, pp_rank - (parallel.pp - extra))
    start = base * pp_rank + longer
    return range(start, start + base + (pp_rank >= parallel.pp - extra))


def check_stages(num_layers: int, parallel: ParallelConfig) -> None:
    if parallel.pp > num_layers:
        raise ConfigError(f"--pp {parallel.pp}: a stage needs a layer, and the model has {num_layers}")
