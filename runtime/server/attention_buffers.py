"""What SGLang's attention backends hold beside the KV pool as soon as they are made.

FlashInfer gives each of its wrappers 8 MiB. tests/oracle/random_attention.py asks SGLang's own classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.releases import Release
from runtime.server.units import MIB

KV_SPLITS = 8  # --triton-attention-num-kv-splits
WRAPPER = 8 * MIB
_RAGGED, _EACH_WAY = 1, 3  # prefills; paged ones, verify and decode
_WRAPPERS = _RAGGED + _EACH_WAY
_STEP_WRAPPERS = 2  # ragged prefill and decode
_LATENT_BLOCK = 32  # _MLA_DECODE_MIN_BLOCK_KV
_LATENT_TRTLLM = 150 * MIB
_COUNTED_ROWS = 8192  # TRTLLM_MLA_MAX_BATCH_SIZE
_DSA_ROWS = 16384
_BY_FLASHINFER = ("flashinfer", "trtllm_mha")  # over heads; the others over latents
SPARSE = ("dsa", "nsa")  # two names of one
LATENTS_BY_TRTLLM = ("trtllm_mla", "cutedsl_mla", "tokenspeed_mla")  # and its kin
_LATENTS_BY_FLASHINFER = ("flashmla", "cutlass_mla", *LATENTS_BY_TRTLLM)
OVER_LATENTS_BY_FLASHINFER = ("flashinfer", *_LATENTS_BY_FLASHINFER)


@dataclass(frozen=True, slots=True)
class Buffer:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workspaces:
    """Bytes, `drafts` of FlashInfer's where a draft is the first to make it; into how many splits Triton's
    decodes cut the keys, or, where these are as many for all batches, how many keys each has; how many
    multiprocessors cut them; and whether sparse attention has one, and counts."""

    flashinfer: int = 384 * MIB
    trtllm_mha: int = 512 * MIB
    split_tile: int | None = None
    kv_splits: int = KV_SPLITS
    processors: int = 132
    drafts: int = 384 * MIB
    has_sparse: bool = False
    counts_sparse: bool = False


WORKSPACES = Workspaces()


@dataclass(frozen=True, slots=True)
class Windows:
    """`tokens` of the one that is told; `apart`: they have a pool of their own; `chunk` of layers that see
    those of their own chunk."""

    tokens: int | None = None
    apart: bool = False
    chunk: int | None = None


NO_WINDOWS = Windows()


def latent_splits(context: int, sizes: Workspaces = WORKSPACES) -> int:
    """How many parts the keys of a request may be split into where they are latent."""
    blocks = _power_above(-(-context // _LATENT_BLOCK))
    return max(sizes.kv_splits, min(_power_above(sizes.processors), blocks))


def _power_above(count: int) -> int:
    return 1 << (count - 1).bit_length()


def key_splits(context: int, latent: bool, sizes: Workspaces = WORKSPACES) -> int:
    if sizes.split_tile is not None:
        return -(-context // sizes.split_tile)
    return latent_splits(context, sizes) if latent else sizes.kv_splits


def backend_buffers(
    backend: str,
    requests: int,
    sizes: Workspaces = WORKSPACES,
    ways: int = 1,
    latent: bool = False,
) -> Iterator[Buffer]:
    """Made with the backend; `ways`: as many wrappers has each kind of batch."""
    if backend == "triton":
        yield Buffer("kv_indptr", "int32", (requests + 1,))
        yield Buffer("qo_indptr", "int64", (requests + 1,))
        yield Buffer("mask_indptr", "int64", (requests + 1,))
    if backend in (*_BY_FLASHINFER, *_LATENTS_BY_FLASHINFER):
        yield _shared_workspace(sizes, latent)
        yield in_bytes("flashinfer_wrappers", (_RAGGED + _EACH_WAY * ways) * WRAPPER)
    yield from _own_workspace(backend, sizes)
    if backend in SPARSE:
        yield Buffer("dsa_rows", "int32", (1, _DSA_ROWS))


def _shared_workspace(sizes: Workspaces, latent: bool) -> Buffer:
    """By all of FlashInfer's over heads, and another by all over latents."""
    return in_bytes("flashinfer_mla_workspace" if latent else "flashinfer_workspace", sizes.flashinfer)


def _own_workspace(backend: str, sizes: Workspaces) -> Iterator[Buffer]:
    if backend == "trtllm_mha":
        yield in_bytes("trtllm_mha_workspace", sizes.trtllm_mha)
    if backend in LATENTS_BY_TRTLLM:
        yield in_bytes(f"{backend}_workspace", _LATENT_TRTLLM)
    if backend in SPARSE and sizes.has_sparse:
        yield in_bytes("dsa_workspace", sizes.flashinfer)


def counting_buffers(
    backend: str, requests: int, heads: int, sizes: Workspaces, release: Release
) -> Iterator[Buffer]:
    """Of TRT-LLM's kernels, which count their parts of a row: as many rows as the largest batch may have.
    srt/layers/attention/trtllm_mla_backend.py."""
    if backend in release.counting_attention and (backend not in SPARSE or sizes.counts_sparse):
        yield Buffer(f"{backend}_counters", "int32", (max(_COUNTED_ROWS, requests), heads))


def wrappers_each(crosses: bool, windows: Windows) -> int:
    """Of FlashInfer, a way to attend: one more for layers that see other tokens."""
    return 2 if crosses or windows.tokens is not None else 1


def draft_backend_buffers(
    backend: str, steps: int, sizes: Workspaces = WORKSPACES, latent: bool = False
) -> Iterator[Buffer]:
    """Made with a draft's backends: its worker's, the one that catches up, and one for every step but the
    last, which prefills nothing. A workspace is the target's, where that has one of the name."""
    if backend in (*_BY_FLASHINFER, *_LATENTS_BY_FLASHINFER):
        yield _shared_workspace(sizes, latent)
        wrappers = 2 * _WRAPPERS + (steps - 1) * _STEP_WRAPPERS
        yield in_bytes("draft_wrappers", wrappers * WRAPPER)
    yield from _own_workspace(backend, sizes)
    if backend in SPARSE:
        yield Buffer("draft_dsa_rows", "int32", (steps + 1, _DSA_ROWS))


def in_bytes(name: str, size: int) -> Buffer:
    return Buffer(name, "uint8", (size,))
