"""Which ranks of a deployment are worth a report: those whose memory can differ."""

from __future__ import annotations

from runtime.server.config import ModelConfig, ParallelConfig
from runtime.server.parallel import rank_layout, stage_layers
from sgl_tune.errors import UsageError

DISTINCT = "distinct"
ALL = "all"


def choose_ranks(asked: str, model: ModelConfig, parallel: ParallelConfig) -> dict[int, int]:
    """`distinct`, `all` or one number: the ranks to report, each with the first one that is like it."""
    alike = _alike(model, parallel)
    if asked == ALL:
        return alike
    if asked == DISTINCT:
        return {rank: rank for rank, first in alike.items() if rank == first}
    if not asked.isdigit() or int(asked) >= parallel.world_size:
        raise UsageError(
            f"--ranks {asked}: the deployment has ranks 0 to {parallel.world_size - 1}",
            "write distinct, all or one number",
        )
    return {int(asked): int(asked)}


def _alike(model: ModelConfig, parallel: ParallelConfig) -> dict[int, int]:
    """By the layers of its stage, the embedding, the head and its experts."""
    first: dict[tuple[object, ...], int] = {}
    return {rank: first.setdefault(_kind(model, parallel, rank), rank) for rank in range(parallel.world_size)}


def rank_name(parallel: ParallelConfig, rank: int) -> str:
    """As SGLang's log names it: `DP1 PP0 TP3`."""
    layout = rank_layout(parallel, rank)
    names = []
    if parallel.attn_dp > 1:
        names.append(f"DP{layout.attn_dp_rank}")
    if parallel.pp > 1:
        names.append(f"PP{layout.pp_rank}")
    return " ".join([*names, f"TP{layout.tp_rank}"])


def _kind(model: ModelConfig, parallel: ParallelConfig, rank: int) -> tuple[object, ...]:
    layout = rank_layout(parallel, rank)
    layers = stage_layers(model.num_layers, parallel, layout.pp_rank)
    kinds = [model.layer_kinds[layer] for layer in layers] if model.layer_kinds else ["dense"] * len(layers)
    moe_layers = kinds.count("moe")
    return (
        layout.pp_rank == 0,
        layout.pp_rank == parallel.pp - 1,
        moe_layers,
        len(kinds) - moe_layers,
        _local_experts(model, parallel, layout.moe_ep_rank) if moe_layers else 0,
    )


def _local_experts(model: ModelConfig, parallel: ParallelConfig, ep_rank: int) -> int:
    if model.moe is None:
        return 0
    base, extra = divmod(model.moe.num_experts, parallel.moe_ep)
    return base + (ep_rank < extra)
