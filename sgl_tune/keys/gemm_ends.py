"""Where a server ends at --fp8-gemm-backend: srt/layers/quantization/fp8_utils.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgl_tune.keys.dense_shapes import linear_sizes, mxfp8_is_known
from sgl_tune.keys.mixed import has_dense

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# Backends that some GPUs alone have, whatever is multiplied.
_MAJORS = {
    "flashinfer_cutlass": (10, 11, 12),
    "flashinfer_trtllm": (10,),
    "flashinfer_deepgemm": (9,),
    "flashinfer_cutedsl": (),  # of mxfp8 alone
    "aiter": (),
}
_CUTLASS_LEFT, _CUTLASS_MAJORS = (0, 5, 16), (12,)  # deprecated on others, and an error
_BLOCK = 128  # columns of others go by Triton, whatever is asked for
_MXFP8_COLUMNS = 256  # of TRT-LLM's


def ends_of_gemms(deployment: Deployment) -> Iterator[str]:
    server, asked = deployment.server, deployment.server.asked.fp8_gemm_runner_backend
    majors = _MAJORS.get(asked)
    if asked == "cutlass" and server.release.number >= _CUTLASS_LEFT:
        majors = _CUTLASS_MAJORS
    if majors is not None and server.gpu.major not in majors and _asks_for_one(deployment):
        yield f"--fp8-gemm-backend {asked} has no kernels for {server.gpu.arch}"
    if server.tunes:
        yield from _mxfp8_gemms(deployment)


def _asks_for_one(deployment: Deployment) -> bool:
    """Fp8LinearMethod, and compressed-tensors' blocks: dispatch_w8a8_block_fp8_linear."""
    block = deployment.model.quantization_block
    if deployment.quantization in ("fp8", "w4afp8"):
        return block is None or block[1] == _BLOCK
    return has_dense(deployment, "fp8")


def _mxfp8_gemms(deployment: Deployment) -> Iterator[str]:
    """And mm_mxfp8 of flashinfer/gemm/gemm_base.py."""
    server, asked = deployment.server, deployment.server.asked.fp8_gemm_runner_backend
    if not mxfp8_is_known(deployment) or not server.release.mxfp8_gemm_methods:
        return
    if asked in ("flashinfer_trtllm", "flashinfer_cutedsl") and server.gpu.major != 10:
        yield f"--fp8-gemm-backend {asked} has no mxfp8 kernels for {server.gpu.arch}"
    elif asked == "flashinfer_trtllm" and server.dtype != "bfloat16":
        yield f"--fp8-gemm-backend {asked} multiplies mxfp8 into bfloat16, and this server has {server.dtype}"
    elif asked == "flashinfer_trtllm":
        cut = next((k for k, _, _ in linear_sizes(deployment, "mxfp8") if k % _MXFP8_COLUMNS), None)
        if cut is not None:
            yield f"--fp8-gemm-backend {asked} takes mxfp8 in multiples of {_MXFP8_COLUMNS}, not {cut}"
