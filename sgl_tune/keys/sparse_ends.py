"""Where a server ends at a kernel of sparse attention: srt/layers/attention/dsa_backend.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.sparse_kernels import OF_GLM, TILELANG, TRTLLM, SparseKernels, is_for_glms_kernel
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from runtime.server.layer_config import MLAConfig
    from sgl_tune.deployment.deployment import Deployment

_EIGHT_BITS, _BY_TRITON = "flashmla_sparse_q8", "triton_sparse_mla"
_OTHER_MAKERS = ("aiter", "intel_xpu")
_MOST_HEADS = 32  # _TRITON_SPARSE_MLA_MAX_HEADS
_TILE = (16, 32)
# _is_fa3_supported of flash_attention_v3.py; trtllm_batch_decode_with_kv_cache_mla of FlashInfer's mla.
_MAJORS = {"fa3": (8, 9), TRTLLM: (10, 12)}


def ends_of_sparse_attention(deployment: Deployment) -> Iterator[str]:
    kernels, mla = deployment.server.sparse_kernels, deployment.model.mla
    if kernels is None or mla is None or mla.indexer is None:
        return
    yield from _of_others(kernels)
    yield from _of_other_gpus(deployment, kernels)
    yield from _on_tilelang(deployment, kernels)
    yield from _in_eight_bits(deployment, kernels, mla)
    yield from _of_glm(deployment, kernels)
    if kernels.prefill == _BY_TRITON:
        yield from _by_triton(deployment, mla.indexer.pool)


def _of_others(kernels: SparseKernels) -> Iterator[str]:
    for phase, kernel in zip(("prefills", "decodes"), kernels.both, strict=True):
        if kernel in _OTHER_MAKERS:
            yield f"sparse attention {phase} on {kernel}, which no NVIDIA GPU has"


def _of_other_gpus(deployment: Deployment, kernels: SparseKernels) -> Iterator[str]:
    """Decodes alone: as they are captured, or for the request by which a server warms up, whose prefill is
    too short to be sparse."""
    server = deployment.server
    decodes = server.decode_graphs or not server.asked.others.get("skip_server_warmup")
    if decodes and server.gpu.major not in _MAJORS.get(kernels.decode, (server.gpu.major,)):
        yield f"sparse attention decodes on {kernels.decode}, which has no kernels for {server.gpu.arch}"


def _on_tilelang(deployment: Deployment, kernels: SparseKernels) -> Iterator[str]:
    server = deployment.server
    is_narrow = server.kv_cache_dtype == "fp8_e4m3" and not server.release.sparse.has_raw_tilelang
    if is_narrow and TILELANG in kernels.both:
        yield f"sparse attention on {TILELANG} reads no {server.kv_cache_dtype}: --kv-cache-dtype bfloat16"


def _in_eight_bits(deployment: Deployment, kernels: SparseKernels, mla: MLAConfig) -> Iterator[str]:
    server = deployment.server
    if kernels.decode == _EIGHT_BITS:
        yield f"{_EIGHT_BITS} prefills alone: another --dsa-decode-backend"
    if kernels.prefill != _EIGHT_BITS:
        return
    narrow = server.kv_cache_dtype == "fp8_e4m3"
    if server.gpu.major != 9:
        yield f"{_EIGHT_BITS} has no kernels for {server.gpu.arch}"
    if not server.release.sparse.casts_rows:
        if not narrow:
            yield f"{_EIGHT_BITS} reads fp8_e4m3 alone: --kv-cache-dtype fp8_e4m3"
        return
    if narrow and not kernels.packs:
        yield f"{_EIGHT_BITS} reads fp8 with scales, and trtllm's has none: --kv-cache-dtype bfloat16"
    elif narrow and not mla.qk_rope_head_dim:
        yield f"{_EIGHT_BITS} reads no fp8 of keys without rope: --kv-cache-dtype bfloat16"
    if server.asked.enable_mixed_chunk:
        yield f"{_EIGHT_BITS} does not go with --enable-mixed-chunk"


def _of_glm(deployment: Deployment, kernels: SparseKernels) -> Iterator[str]:
    """_validate_flashinfer_sparse_mla_backend of kernels/ops/attention/flash_mla_sm120.py"""
    server, rules = deployment.server, deployment.server.release.sparse
    if not rules.has_glms_kernel:
        return
    architecture = checkpoint_of(deployment).architecture
    is_its = is_for_glms_kernel(architecture, server.gpu.major, server.kv_cache_dtype)
    if OF_GLM in kernels.both and not is_its:
        yield f"{OF_GLM} is for GLM's sparse attention over fp8 on sm120"
    known = (OF_GLM, _BY_TRITON) if rules.casts_rows else (OF_GLM,)
    others = [one for one in kernels.both if one not in known]
    if is_its and others:
        yield f"GLM's sparse attention over fp8 on sm120 has no {others[0]}: {', '.join(known)}"


def _by_triton(deployment: Deployment, pool: int) -> Iterator[str]:
    server = deployment.server
    heads = deployment.model.main_attention.num_heads // deployment.parallel.attn_tp
    if server.gpu.major < 9:
        yield f"{_BY_TRITON} has no kernels for {server.gpu.arch}"
    if heads > _MOST_HEADS:
        yield f"{_BY_TRITON} is of {_MOST_HEADS} heads a rank at most, and here are {heads}"
    if pool > 1:
        yield f"{_BY_TRITON} takes no tokens beside pools of them"
    told = server.asked.others.get("dsa_triton_union") or 0
    union = 0 if server.asked.enable_deterministic_inference else told
    rows, (least, most) = heads * union, _TILE
    if union and (rows < least or rows > most or rows & (rows - 1)):
        yield f"--dsa-triton-union {union} makes {rows} rows of {heads} heads: a tile is {least} or {most}"
