"""Where a server ends for want of kernels: the GPU, the weights and the MoE backend decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.call_rules import chooses_itself, fuses_on_each_rank
from runtime.server.families import MINIMAX_NVFP4
from sgl_tune.keys.attention_ends import ends_of_attention
from sgl_tune.keys.call_shapes import has_kernels, routing_of, tunes_moe
from sgl_tune.keys.expert_calls import (
    FP4_TILE,
    FP8_METHODS,
    HAVE_NO_FP8,
    MXFP4_BESIDE_FP8,
    NVFP4_BESIDE_FP8,
    STATIC_FP8,
    calls_of,
    leaves_choice_to_others,
    rows_of_mxfp4,
    runs_mxfp4_by_cutlass,
    weights_of,
)
from sgl_tune.keys.gemm_ends import ends_of_gemms
from sgl_tune.keys.mixed import of_each_kind
from sgl_tune.keys.packed_experts import METHOD, PACKED_NVFP4, takes_packed, wants_logits
from sgl_tune.keys.sparse_ends import ends_of_sparse_attention

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# Experts that go by gelu: the backends and, of TRT-LLM's kernels, the weights that take them.
_WITH_GELU = (
    *("auto", "triton", "triton_kernel", "torch"),
    *("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
)
_GELU_ON_TRTLLM = ("modelopt_fp4", "nvfp4_online")
_BY_SILU = ("awq_marlin", "gptq_marlin", "moe_wna16", "mxfp4", "w4afp8")


def ends_of_kernels(deployment: Deployment) -> Iterator[str]:
    """Of one that tunes nothing, those of its attention and of experts by gelu alone."""
    yield from _gates(deployment)
    yield from ends_of_gemms(deployment)
    if deployment.model.attention:  # else no backend of it is made, whatever is settled
        yield from ends_of_attention(deployment)
        yield from ends_of_sparse_attention(deployment)
    if deployment.server.tunes:
        yield from _tuned(deployment)


def _tuned(deployment: Deployment) -> Iterator[str]:
    for one in of_each_kind(deployment) if tunes_moe(deployment) else ():
        yield from _of_experts(one)


def _of_experts(deployment: Deployment) -> Iterator[str]:
    server, backend = deployment.server, deployment.server.moe_runner_backend
    if not tunes_moe(deployment):
        return
    if not has_kernels(deployment):
        yield f"FlashInfer has no {backend} kernels for {server.gpu.arch}"
    if not _takes_dispatch(deployment):
        yield f"MoE backend {backend} has no kernels behind all-to-all {server.moe_a2a_backend}"
    if calls_of(deployment) is not None and not _takes_weights(deployment):
        yield f"MoE backend {backend} has no kernels for experts in {_words(deployment)}"
    if _asks_trtllm_for_fp8(deployment):
        yield f"--flashinfer-mxfp4-moe-precision fp8 ends on {server.gpu.arch}, where SGLang has none"
    cut = _cut_tile(deployment)
    if cut is not None:
        yield f"MoE backend {backend} takes experts in multiples of {FP4_TILE}, and a rank's are {cut} wide"
    if not _takes_weighted_rows(deployment):
        yield f"MoE backend {backend} does not take rows that are weighted before the experts"
    if _adds_shared_to_trtllm(deployment):
        yield f"MoE backend {backend} takes no shared expert beside its own: --disable-shared-experts-fusion"
    if calls_of(deployment) == "trtllm" and not _takes_routing(deployment):
        yield f"MoE backend {backend} does not take how experts of {_words(deployment)} are chosen here"


def _gates(deployment: Deployment) -> Iterator[str]:
    """srt/layers/moe/moe_runner, srt/layers/quantization: who asks for silu."""
    if deployment.model.moe is not None and deployment.model.gelu:
        for one in of_each_kind(deployment):
            yield from _by_gelu(one)


def _by_gelu(deployment: Deployment) -> Iterator[str]:
    server, method = deployment.server, deployment.quantization
    by_trtllm = server.backend.calls == "trtllm" and method not in _GELU_ON_TRTLLM
    if server.moe_runner_backend not in _WITH_GELU or method in _BY_SILU or by_trtllm:
        backend = server.moe_runner_backend
        yield f"MoE backend {backend} has no kernels for experts by gelu in {_words(deployment)}"


def _takes_dispatch(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner: what is registered for a pair of all-to-all and backend."""
    row, a2a = deployment.server.backend, deployment.server.moe_a2a_backend
    if deployment.server.is_draft:
        return True  # it may have an all-to-all of its own
    if a2a == "flashinfer":
        since = row.under_flashinfer_a2a_since
        return since is not None and deployment.server.release.number >= since
    if row.name == "flashinfer_megamoe":
        return a2a == row.name
    if a2a == "megamoe" and deployment.quantization == MINIMAX_NVFP4:
        return True  # which prefills by the one, and decodes by the other
    return a2a == "none" or a2a in row.all_to_alls or row.name == a2a


def _takes_weights(deployment: Deployment) -> bool:
    server, weights = deployment.server, weights_of(deployment)
    calls, method = calls_of(deployment), deployment.quantization
    if weights == NVFP4_BESIDE_FP8:
        return True  # which of them end is not known
    if calls != server.backend.calls and leaves_choice_to_others(deployment):
        return False
    if calls == "mxfp4":
        return _takes_mxfp4(deployment)
    if method == METHOD and weights is not None:
        return takes_packed(weights, deployment.model, server)
    if method in ("mxfp4", "awq_marlin", "gptq_marlin") or (method in FP8_METHODS and calls in HAVE_NO_FP8):
        return False
    if method == "modelopt_fp4" and calls == "cutlass":
        return server.gpu.major >= 10
    # Its scales for activations come from the checkpoint, and one that is made here has none.
    return not (calls == "trtllm" and _is_plain_fp8(deployment) and weights != STATIC_FP8)


def _takes_mxfp4(deployment: Deployment) -> bool:
    """Its kernels run experts in mxfp4 alone."""
    server, weights = deployment.server, weights_of(deployment)
    if weights == MXFP4_BESIDE_FP8:
        return server.gpu.major == 10 or runs_mxfp4_by_cutlass(deployment)
    if weights == "mxfp4":
        return server.gpu.major == 10 or server.gpu.major in server.release.mxfp4_by_cutlass
    return False


def _asks_trtllm_for_fp8(deployment: Deployment) -> bool:
    """srt/layers/quantization: mxfp4.py, mxfp4_flashinfer_trtllm_moe.py. Elsewhere nobody looks."""
    on_trtllm = deployment.server.backend.calls == "mxfp4" and deployment.server.gpu.major == 10
    in_mxfp4 = weights_of(deployment) in ("mxfp4", MXFP4_BESIDE_FP8)
    return on_trtllm and in_mxfp4 and rows_of_mxfp4(deployment) == "fp8"


def _cut_tile(deployment: Deployment) -> int | None:
    """What SGLang ends at, or None: mxfp4_flashinfer_cutlass_moe.py of srt/layers/quantization."""
    moe = deployment.model.moe
    if moe is None or weights_of(deployment) != MXFP4_BESIDE_FP8 or not runs_mxfp4_by_cutlass(deployment):
        return None
    sizes = (deployment.model.hidden_size, moe.intermediate_size // deployment.parallel.moe_tp)
    return next((size for size in sizes if size % FP4_TILE), None)


def _takes_weighted_rows(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner, and modelopt_quant.py of srt/layers/quantization."""
    server, moe = deployment.server, deployment.model.moe
    assert moe is not None
    calls = calls_of(deployment)
    if not moe.weighs_input or calls not in ("cutlass", "cutedsl"):
        return True
    if calls == "cutedsl" or weights_of(deployment) in ("modelopt_fp4", PACKED_NVFP4):
        return False
    rule = server.release.weighted_rows
    return rule == "as others" or (rule == "of one expert" and moe.top_k == 1)


def _adds_shared_to_trtllm(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner/flashinfer_trtllm.py: plain experts, where a model fuses on any backend."""
    if deployment.server.backend.calls != "trtllm" or deployment.quantization is not None:
        return False
    return fuses_on_each_rank(deployment.model, deployment.runtime)


def _takes_routing(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner/flashinfer_trtllm.py: kernels of some weights choose by logits alone."""
    moe, server, method = deployment.model.moe, deployment.server, deployment.quantization
    by_logits, weights = routing_of(deployment) == "logits", weights_of(deployment)
    if weights is None and by_logits:
        assert moe is not None
        return moe.renormalize
    if by_logits or server.release.routes_by_named_method:
        return True
    if method == "modelopt_fp8" or weights == STATIC_FP8 or wants_logits(weights, server):
        return False
    chosen_anyway = chooses_itself(deployment.model) and not server.backend.routed
    by_ids = method == "modelopt_fp4" and server.release.number >= (0, 5, 13)
    return not chosen_anyway or by_ids or weights == PACKED_NVFP4


def _is_plain_fp8(deployment: Deployment) -> bool:
    return deployment.quantization == "fp8" and deployment.model.quantization_block is None


def _words(deployment: Deployment) -> str:
    method = deployment.quantization or deployment.server.dtype
    return f"{method} without blocks" if _is_plain_fp8(deployment) else method
