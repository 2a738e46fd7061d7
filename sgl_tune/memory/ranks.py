"""Which ranks of a deployment are worth a report: those whose memory can differ."""

from __future__ import annotations

from collections import Counter

from runtime.server.bounds import is_number
from runtime.server.config import ModelConfig
from runtime.server.layer_kinds import layer_kind
from runtime.server.parallel import rank_layout, stage_layers
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.errors import UsageError
from sgl_tune.units import shown

DISTINCT = "distinct"
ALL = "all"


def choose_ranks(asked: str, model: ModelConfig, parallel: ParallelConfig) -> dict[int, int]:
    """`distinct`, `all` or one number: the ranks to report, each with the first one that is like it."""
    alike = _alike(model, parallel)
    if asked == ALL:
        return alike
    if asked == DISTINCT:
        return {rank: rank for rank, first in alike.items() if rank == first}
    if not is_number(asked) or int(asked) >= parallel.world_size:
        raise UsageError(
            f"--ranks {shown(asked)}: the deployment has ranks 0 to {parallel.world_size - 1}",
            "write distinct, all or one number",
        )
    return {int(asked): int(asked)}


def _alike(model: ModelConfig, parallel: ParallelConfig) -> dict[int, int]:
    """By the layers of its stage, the embedding, the head and its experts."""
    first: dict[tuple[object, ...], int] = {}
    stages = [_layers_of(model, parallel, stage) for stage in range(parallel.pp)]
    kinds = {rank: _kind(model, parallel, rank, stages) for rank in range(parallel.world_size)}
    return {rank: first.setdefault(kind, rank) for rank, kind in kinds.items()}


def rank_name(parallel: ParallelConfig, rank: int) -> str:
    """As SGLang's log names it: `DP1 PP0 TP3`."""
    layout = rank_layout(parallel, rank)
    names = []
    if parallel.attn_dp > 1:
        names.append(f"DP{layout.attn_dp_rank}")
    if parallel.pp > 1:
        names.append(f"PP{layout.pp_rank}")
    return " ".join([*names, f"TP{layout.tp_rank}"])


def _layers_of(model: ModelConfig, parallel: ParallelConfig, stage: int) -> Counter[tuple[object, ...]]:
    """How many of each kind."""
    layers = stage_layers(model.num_layers, parallel, stage)
    return Counter(_layer_kind(model, layer) for layer in layers)


def _layer_kind(model: ModelConfig, layer: int) -> tuple[object, ...]:
    """Layers behind a window are as large as those that see everything, of as many heads, in a pool alike."""
    mlp, attention, *others = layer_kind(model, layer)
    if not model.keeps_tokens(layer):
        return mlp, attention, *others
    one = model.layer_attention(layer)
    return mlp, (one.num_heads, one.num_kv_heads, one.head_dim, one.value_width), *others


def _kind(
    model: ModelConfig, parallel: ParallelConfig, rank: int, stages: list[Counter[tuple[object, ...]]]
) -> tuple[object, ...]:
    layout = rank_layout(parallel, rank)
    layers = stages[layout.pp_rank]
    has_moe = any(kind[0] == "moe" for kind in layers)
    return (
        layout.pp_rank == 0,
        layout.pp_rank == parallel.pp - 1,
        frozenset(layers.items()),
        _local_experts(model, parallel, layout.moe_ep_rank) if has_moe else 0,
    )


def _local_experts(model: ModelConfig, parallel: ParallelConfig, ep_rank: int) -> int:
    if model.moe is None:
        return 0
    base, extra = divmod(model.moe.places, parallel.moe_ep)
    return base + (ep_rank < extra)
