"""Whether a server fuses its all-reduces with norms by FlashInfer, which takes workspaces of its own."""

from __future__ import annotations

from runtime.server.choices import Choices
from runtime.server.shape import Server
from runtime.server.units import MIB

_ROWS = 2048  # FUSE_ALLREDUCE_MAX_BATCH_SIZE of every release
_LARGEST = (1 << 31) - 2 * MIB
_FLAGS = 1024  # of every rank
_GRANULE = 2 * MIB
_BY_IPC = (None, "auto", "trtllm")


def fuses_all_reduce(c: Choices) -> bool:
    """_flashinfer_allreduce_fusion_auto_enable, and the switch behind it."""
    if c.enforce_disable_flashinfer_allreduce_fusion or c.tp_size == 1:
        return False
    if c.flashinfer_allreduce_fusion_backend is not None:
        return True
    return (
        c.model.architecture in c.release.fused_all_reduce
        and c.gpu.major in (9, 10)
        and (c.gpu.name != "H20" or c.release.fuses_all_reduce_on_h20)
        and not c.enable_dp_attention
        and (c.nnodes == 1 or (c.gpu.major == 10 and c.release.fuses_all_reduce_over_nodes))
        and c.moe_a2a_backend == "none"
    )


def least_fused_buffers(server: Server, hidden: int) -> int:
    """Bytes outside torch; 0 where they are not known, which is on Blackwell.

    `_flashinfer_trtllm_workspace_allocation_sizes` of layers/flashinfer_comm_fusion.py, for attention's ranks
    and for those of the experts. The driver is asked how far each buffer is rounded up, by 2 MiB at least.
    """
    if server.gpu.major != 9 or server.asked.flashinfer_allreduce_fusion_backend not in _BY_IPC:
        return 0
    parallel = server.parallel
    experts = parallel.moe_ep if parallel.moe_ep > 1 else parallel.moe_tp
    return sum(_workspace(ranks, hidden) for ranks in (parallel.attn_tp, experts) if ranks > 1)


def _workspace(ranks: int, hidden: int) -> int:
    exchanged = 2 * ranks * _ROWS * hidden
    buffers = (exchanged, _FLAGS * ranks, 3 * min(exchanged, _LARGEST))
    return sum(-(-size // _GRANULE) * _GRANULE for size in buffers)
