"""What SGLang's attention backends hold beside the KV pool: workspaces, and the page tables of decode graphs.

Read from SGLang 0.5.17. FlashInfer gives each of its wrappers 8 MiB, and each decode graph a wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.units import MIB

KV_SPLITS = 8  # --triton-attention-num-kv-splits
_FLASHINFER_WORKSPACE = 384 * MIB  # SGLANG_FLASHINFER_WORKSPACE_SIZE
_WRAPPER = 8 * MIB
_WRAPPERS = 4  # ragged and paged prefill, verify, decode
_TRTLLM_PAGE = 64
_LATENT_BLOCK = 32  # _MLA_DECODE_MIN_BLOCK_KV
_LATENT_SPLITS = 256  # the power of two above the multiprocessors: 132 to 188 on the GPUs of gpus.py


@dataclass(frozen=True, slots=True)
class Buffer:
    name: str
    dtype: str
    shape: tuple[int, ...]


def latent_splits(context: int) -> int:
    """How many parts the keys of a request may be split into where they are latent."""
    fitting = 1 << (-(-context // _LATENT_BLOCK) - 1).bit_length()
    return max(KV_SPLITS, min(_LATENT_SPLITS, fitting))


def backend_buffers(backend: str, requests: int, sm_major: int) -> Iterator[Buffer]:
    """Made with the backend."""
    if backend == "triton":
        yield Buffer("kv_indptr", "int32", (requests + 1,))
        yield Buffer("qo_indptr", "int64", (requests + 1,))
        yield Buffer("mask_indptr", "int64", (requests + 1,))
    if backend in ("flashinfer", "trtllm_mha", "trtllm_mla"):
        yield _bytes("flashinfer_workspace", _FLASHINFER_WORKSPACE)
        yield _bytes("flashinfer_wrappers", _WRAPPERS * _WRAPPER)
    if backend == "trtllm_mha":
        yield _bytes("trtllm_mha_workspace", 512 * MIB)
    if backend == "trtllm_mla":
        yield _bytes("trtllm_mla_workspace", 150 * MIB)
    if backend == "dsa" and sm_major >= 10:
        yield _bytes("dsa_trtllm_workspace", _FLASHINFER_WORKSPACE)


def decode_graph_buffers(
    backend: str, max_bs: int, width: int, context: int, page: int, graphs: int
) -> Iterator[Buffer]:
    """Made for the largest decode graph and shared by all; `width` is a request's tokens."""
    rows = max_bs * width
    if backend == "triton":
        yield Buffer("cuda_graph_kv_indices", "int64", (rows * context,))
    elif backend == "flashinfer":
        yield Buffer("cuda_graph_kv_indices", "int32", (rows * context,))
        yield _bytes("cuda_graph_wrappers", graphs * _WRAPPER)
    elif backend == "dsa":
        # Speculation reads the table token by token, plain decoding page by page.
        yield Buffer("page_table", "int32", (rows, context if width > 1 else -(-context // page)))
    else:
        page = _TRTLLM_PAGE if backend in ("trtllm_mha", "trtllm_mla") else page
        yield Buffer("page_table", "int32", (max_bs, -(-context // page)))


def _bytes(name: str, size: int) -> Buffer:
    return Buffer(name, "uint8", (size,))
