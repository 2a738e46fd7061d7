"""Experts that compressed-tensors has quantized: its schemes choose kernels, some by --moe-runner-backend.

srt/layers/quantization/compressed_tensors: compressed_tensors.py, and the schemes beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.server.call_rules import DEEPSEEK_LAYERS, names_routing
from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import has_int4_experts

if TYPE_CHECKING:
    from runtime.server.config import ModelConfig
    from runtime.server.formats.kinds import Kind
    from runtime.server.shape import Server

METHOD = "compressed-tensors"
PACKED_INT4, PACKED_INTEGERS = "int4 in groups of 32", "packed integers"
PACKED_NVFP4, PACKED_WEIGHTS = "packed nvfp4", "packed nvfp4 of weights alone"
PACKED_BLOCKS = "fp8 in blocks of compressed-tensors"
_TRTLLM = "flashinfer_trtllm"
_BY_CUTLASS = (0, 5, 16)  # before, by SGLang's own kernels
_BY_LOGITS_ALONE = (0, 5, 17)


def packed_weights(kind: Kind | None, checkpoint: Checkpoint, sm_major: int) -> str | None:
    """None: a list keeps them plain."""
    if kind is None:
        return None
    if kind.name == "packed":
        return PACKED_INT4 if kind.symmetric and has_int4_experts(checkpoint) else PACKED_INTEGERS
    if kind.name == "nvfp4_packed":
        return PACKED_NVFP4 if kind.has_inputs and sm_major >= 10 else PACKED_WEIGHTS
    return PACKED_BLOCKS if (kind.name, kind.per) == ("fp8", "block") else METHOD


def runs_by_cutlass(weights: str | None, server: Server) -> bool:
    """On any backend but one."""
    since = server.release.number >= _BY_CUTLASS
    return weights == PACKED_NVFP4 and since and server.moe_runner_backend != _TRTLLM


def runs_by_its_own(weights: str | None, server: Server) -> bool:
    """Marlin, or CUTLASS as SGLang has it: nobody tunes these."""
    if weights in (PACKED_INTEGERS, PACKED_WEIGHTS):
        return True
    elsewhere = server.moe_runner_backend != _TRTLLM
    return elsewhere and (
        weights == PACKED_INT4 or (weights == PACKED_NVFP4 and not runs_by_cutlass(weights, server))
    )


def takes_packed(weights: str | None, model: ModelConfig, server: Server) -> bool:
    on_trtllm, release = server.moe_runner_backend == _TRTLLM, server.release
    unnamed = on_trtllm and names_routing(model, release) is False
    if weights == PACKED_BLOCKS:
        return on_trtllm and (release.routes_by_named_method or not unnamed)
    return not unnamed and (weights == PACKED_NVFP4 or (on_trtllm and weights == PACKED_INT4))


def wants_logits(weights: str | None, server: Server) -> bool:
    return weights == PACKED_NVFP4 and server.release.number < _BY_LOGITS_ALONE


def packed_calls_are_known(weights: str | None, model: ModelConfig, server: Server, ep: int) -> bool:
    """Not where nobody names a way of routing, behind an all-to-all, or gathered in nvfp4."""
    if weights not in (PACKED_NVFP4, PACKED_BLOCKS):
        return True
    alone = server.moe_a2a_backend == "none" and not server.gathers_nvfp4
    if server.moe_runner_backend != _TRTLLM:
        return alone
    routed_apart = weights == PACKED_BLOCKS and ep > 1 and model.model_type in DEEPSEEK_LAYERS
    return alone and names_routing(model, server.release) is not None and not routed_apart
