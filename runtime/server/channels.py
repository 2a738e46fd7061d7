"""What the ranks of a server open to talk to each other, and when. Read from SGLang 0.5.17.

A group has a communicator of SGLang's own, opened at once (distributed/parallel_state.py), or torch's, which
NCCL opens when it is first used. Where NVLink joins all GPUs of a group, small messages of a tensor-parallel
group go through a buffer that its ranks share (device_communicators/custom_all_reduce_v2.py).
"""

from __future__ import annotations

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.units import KIB, MIB

_SHARED = 16 * MIB  # SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB: what is longer goes by NCCL, in graphs too
_POINTERS = 131_072  # of messages in graphs, for each rank
_GRANULE = 2 * MIB
# KiB that each rank pushes to each, in two phases: configs/custom_all_reduce_v2.py
_PUSHED_90 = {2: 16_384, 3: 3_072, 4: 896, 5: 384, 6: 192, 7: 128, 8: 128}
_PUSHED_100 = {2: 16_384, 3: 8_192, 4: 3_072, 5: 2_048, 6: 1_280, 7: 1_024, 8: 768, 16: 256}
_PUSHED = {9: _PUSHED_90, 10: _PUSHED_100}


def own_groups(parallel: ParallelConfig) -> tuple[int, ...]:
    """How many ranks each group has whose communicator is there before the weights."""
    return tuple(size for size in (parallel.tp, parallel.pp) if size > 1)


def groups_of_torch(model: ModelConfig, parallel: ParallelConfig) -> tuple[int, ...]:
    """Those that no other communicator serves: they open in the first forward, captured or not."""
    sizes = [parallel.attn_tp]
    if model.moe is not None:
        sizes += [parallel.moe_ep, parallel.moe_tp]
    return tuple(size for size in sizes if 1 < size < parallel.tp)


def eager_groups(
    model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig, rows: int
) -> tuple[int, ...]:
    """Those that a forward of so many rows opens outside graphs, where SGLang's own communicators are off."""
    if parallel.tp == 1:
        return ()
    shared = not parallel.gathers_mlp and shared_buffer(parallel, runtime) and message(model, rows) <= _SHARED
    return () if shared else (parallel.tp,)


def shared_buffer(parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """Its bytes outside torch; 0 where there is none."""
    pushed = _PUSHED.get(runtime.sm_major, {}).get(parallel.tp)
    if pushed is None or runtime.disable_custom_all_reduce or parallel.nnodes > 1:
        return 0
    whole = 2 * parallel.tp * pushed * KIB + _SHARED
    return -(-whole // _GRANULE) * _GRANULE


def shared_pointers(parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """How many int64 torch holds for it."""
    return _POINTERS * parallel.tp if shared_buffer(parallel, runtime) else 0


def captured_messages(
    model: ModelConfig,
    parallel: ParallelConfig,
    runtime: RuntimeConfig,
    rows: int,
    layers: int,
    is_prefill: bool,
    has_head: bool,
) -> int:
    """How many messages of a captured forward of so many rows NCCL carries: each is kept in the graph.

    The head's parts of the logits are always gathered by it.
    """
    if parallel.tp == 1:
        return 0
    if parallel.gathers_mlp:
        own = parallel.attn_tp > 1 and is_prefill  # attention's sum, which is short in a decode
        has_gather = has_head and (runtime.head_over != "a group" or parallel.attn_tp > 1)
        return (2 + own) * layers + has_gather
    shared = shared_buffer(parallel, runtime) and message(model, rows) <= _SHARED
    long = 0 if shared else 2 * layers + 1  # after attention, after the MLP, and of the embedding
    return long + has_head


def message(model: ModelConfig, rows: int) -> int:
    return 2 * model.hidden_size * rows
