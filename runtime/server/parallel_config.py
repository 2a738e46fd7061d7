"""How a server's ranks share a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.server.bounds import MOST_RANKS, PARALLEL, check_flags
from runtime.server.errors import ConfigError

HeadOver = Literal["all ranks", "a group"]  # who shares a head


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
        """An all-to-all takes each attention-TP rank's own part of the rows."""
        return self.gathers_mlp or (moe_a2a_backend != "none" and self.tp > 1)

    @property
    def moe_tp(self) -> int:
        return self.tp // self.ep
