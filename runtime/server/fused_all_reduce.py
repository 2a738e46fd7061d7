"""Whether a server fuses its all-reduces with norms by FlashInfer, which takes workspaces of its own."""

from __future__ import annotations

from runtime.server.choices import Choices


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
