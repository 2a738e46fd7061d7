"""What the ranks of a server open to talk to each other, and when. Read from SGLang 0.5.17.

A group has a communicator of SGLang's own, opened at once (distributed/parallel_state.py), or torch's, which
NCCL opens when it is first used. Where NVLink joins all GPUs of a group, small messages of a tensor-parallel
group go through a buffer that its ranks share (device_communicators/custom_all_reduce_v2.py).
"""

from __future__ import annotations

from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig
from runtime.server.units import KIB, MIB

_SHARED = 16 * MIB  # SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB
_SHORT = MIB  # what NCCL sends without more buffers than it has
_POINTERS = 131_072  # of messages in graphs, for each rank
_GRANULE = 2 * MIB
# KiB that each rank pushes to each, in two phases: configs/custom_all_reduce_v2.py
_PUSHED_90 = {2: 16_384, 3: 3_072, 4: 896, 5: 384, 6: 192, 7: 128, 8: 128}
_PUSHED_100 = {2: 16_384, 3: 8_192, 4: 3_072, 5: 2_048, 6: 1_280, 7: 1_024, 8: 768, 16: 256}
_PUSHED = {9: _PUSHED_90, 10: _PUSHED_100}
_SHORT_IN_GRAPHS = {9: (5, 6, 7)}  # of these ranks messages up to 32 MiB, else 128


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


def fills_channels(model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig, rows: int) -> bool:
    """Whether NCCL carries long messages in graphs: it then connects channels that short ones never need."""
    if parallel.tp == 1:
        return False
    if parallel.gathers_mlp or not shared_buffer(parallel, runtime):
        return message(model, rows) > _SHORT
    is_short = parallel.tp in _SHORT_IN_GRAPHS.get(runtime.sm_major, ())
    return message(model, rows) >= (32 if is_short else 128) * MIB


def warms_up_long(model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig, rows: int) -> bool:
    """Whether the forwards before a capture send more than the shared buffer takes outside graphs."""
    if parallel.gathers_mlp or not shared_buffer(parallel, runtime):
        return False
    return message(model, rows) > _SHARED


def message(model: ModelConfig, rows: int) -> int:
    return 2 * model.hidden_size * rows
