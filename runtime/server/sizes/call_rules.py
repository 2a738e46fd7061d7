"""What a server's layout decides about a MoE call: its experts and how it is routed. No torch."""

from typing import Literal

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig

# The kernel routes by the logits, or is given ids and weights apart.
Routing = Literal["logits", "apart"]


def routing_form(
    model: ModelConfig, runtime: RuntimeConfig, in_fp8_blocks: bool, ep: int, attn_dp: int
) -> Routing:
    spread = ep > 1 and attn_dp == 1
    routed = in_fp8_blocks and spread and model.traits.of_deepseek
    routed = routed or backend_row(runtime.kernels.moe).routed
    return "apart" if routed or not kernels_route(model) else "logits"


def kernels_route(model: ModelConfig) -> bool:
    """Whether the kernel does the routing: the family names a way that fits the model's router."""
    moe, named = model.moe, model.traits.routing
    if moe is None or not named:
        return False
    if named == "deepseek":
        return moe.scoring == "sigmoid" and moe.correction_bias and moe.renormalize
    return moe.scoring == "softmax" and moe.renormalize


def fused_shared_experts(model: ModelConfig, runtime: RuntimeConfig, ep: int) -> int:
    """Return how many shared experts a CUTLASS call runs as routed ones after the last: 1 or 0.

    SGLang's Triton kernels do so too, but no key depends on it there, and both ways compute the same.
    """
    moe, of, kernels = model.moe, model.traits.fuses_shared_of, runtime.kernels
    if moe is None or moe.shared_intermediate_size != moe.intermediate_size:
        return 0
    by_cutlass = backend_row(kernels.moe).fuses_shared_experts and kernels.fuses_shared_experts
    return int(by_cutlass and kernels.a2a == "none" and ep == 1 and of in (-1, moe.num_experts))
