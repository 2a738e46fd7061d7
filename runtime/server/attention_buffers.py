"""What SGLang's attention backends hold beside the KV pool: workspaces, and the page tables of decode graphs.

Read from SGLang 0.5.17. FlashInfer gives each of its wrappers 8 MiB, and each decode graph a wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.units import MIB

KV_SPLITS = 8  # --triton-attention-num-kv-splits
_WRAPPER = 8 * MIB
_RAGGED, _EACH_WAY = 1, 3  # prefills; paged ones, verify and decode
_WRAPPERS = _RAGGED + _EACH_WAY
_STEP_WRAPPERS = 2  # ragged prefill and decode
_ASKED_BY_DRAFTS = ("fa3", "fa4", "trtllm_mha")
_SPECULATIVE_TABLES = 3  # beside a decode's: a draft's decode, a verify and a catch-up, each made by all
_TREE_TABLES = 2
_BEHIND_WINDOWS = {"trtllm_mha": 3}  # of these; others have none of a draft's decode
_LATENT_ROW = 4096  # tokens of a page table at a time, _FLASHMLA_CREATE_KV_BLOCK_SIZE
_LATENT_BLOCK = 32  # _MLA_DECODE_MIN_BLOCK_KV
_LATENT_SPLITS = 256  # the power of two above the multiprocessors: 132 to 188 on the GPUs of gpus.py


@dataclass(frozen=True, slots=True)
class Buffer:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workspaces:
    """Bytes; and how many keys a split of a decode by triton has, where they are as many for all."""

    flashinfer: int = 384 * MIB
    trtllm_mha: int = 512 * MIB
    split_tile: int | None = None


WORKSPACES = Workspaces()


@dataclass(frozen=True, slots=True)
class Windows:
    """`tokens` of the one that is told; `apart`: they have a pool of their own; `chunk` of layers that see
    those of their own chunk."""

    tokens: int | None = None
    apart: bool = False
    chunk: int | None = None


NO_WINDOWS = Windows()


def latent_splits(context: int) -> int:
    """How many parts the keys of a request may be split into where they are latent."""
    fitting = 1 << (-(-context // _LATENT_BLOCK) - 1).bit_length()
    return max(KV_SPLITS, min(_LATENT_SPLITS, fitting))


def key_splits(context: int, latent: bool, tile: int | None) -> int:
    """`tile`: of how many keys each is, where that is the same for all batches."""
    if tile is not None:
        return -(-context // tile)
    return latent_splits(context) if latent else KV_SPLITS


def backend_buffers(
    backend: str, requests: int, sm_major: int, sizes: Workspaces = WORKSPACES, ways: int = 1
) -> Iterator[Buffer]:
    """Made with the backend; `ways`: as many wrappers has each kind of batch."""
    if backend == "triton":
        yield Buffer("kv_indptr", "int32", (requests + 1,))
        yield Buffer("qo_indptr", "int64", (requests + 1,))
        yield Buffer("mask_indptr", "int64", (requests + 1,))
    if backend in ("flashinfer", "trtllm_mha", "trtllm_mla"):
        yield _bytes("flashinfer_workspace", sizes.flashinfer)
        yield _bytes("flashinfer_wrappers", (_RAGGED + _EACH_WAY * ways) * _WRAPPER)
    if backend == "trtllm_mha":
        yield _bytes("trtllm_mha_workspace", sizes.trtllm_mha)
    if backend == "trtllm_mla":
        yield _bytes("trtllm_mla_workspace", 150 * MIB)
    if backend == "dsa" and sm_major >= 10:
        yield _bytes("dsa_trtllm_workspace", sizes.flashinfer)


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """`graphs` of decodes of up to `max_bs` requests, each of `width` tokens. `masks`: of which of them see
    which, whether or not there are drafts; `crosses`: to images, too."""

    max_bs: int
    width: int
    context: int
    page: int
    graphs: int
    topk: int = 1
    crosses: bool = False
    masks: bool = False
    windows: Windows = NO_WINDOWS

    @property
    def rows(self) -> int:
        return self.max_bs * self.width


def decode_graph_buffers(backend: str, sizes: GraphSizes) -> Iterator[Buffer]:
    """Made for the largest decode graph and shared by all."""
    rows, context, windows = sizes.rows, sizes.context, sizes.windows
    if backend == "triton":
        yield Buffer("cuda_graph_kv_indices", "int64", (rows * context,))
        if windows.tokens is not None:
            yield Buffer("cuda_graph_window_kv_indices", "int64", (rows * windows.tokens,))
        if sizes.masks or sizes.width > 1:
            yield _bytes("cuda_graph_custom_mask", rows * context)
    elif backend == "flashinfer":
        ways = wrappers_each(sizes.crosses, windows)
        yield Buffer("cuda_graph_kv_indices", "int32", (ways * rows * context,))
        yield _bytes("cuda_graph_custom_mask", rows * context)
        yield _bytes("cuda_graph_wrappers", ways * sizes.graphs * _WRAPPER)
    elif backend == "dsa":
        # Speculation reads the table token by token, plain decoding page by page.
        pages = context if sizes.width > 1 else -(-context // sizes.page)
        yield Buffer("page_table", "int32", (rows, pages))
    else:
        yield from _page_tables(backend, sizes)


def wrappers_each(crosses: bool, windows: Windows) -> int:
    """Of FlashInfer, a way to attend: one more for layers that see other tokens."""
    return 2 if crosses or windows.tokens is not None else 1


def _page_tables(backend: str, sizes: GraphSizes) -> Iterator[Buffer]:
    pages = -(-sizes.context // sizes.page)
    if backend == "trtllm_mla":
        pages = -(-sizes.context // _LATENT_ROW) * _LATENT_ROW // sizes.page
    yield Buffer("page_table", "int32", (sizes.max_bs, pages))
    if sizes.windows.apart and backend in _ASKED_BY_DRAFTS:
        yield Buffer("swa_page_table", "int32", (sizes.max_bs, pages))
    if sizes.windows.chunk is not None and backend == "fa3":
        chunk = sizes.windows.chunk
        chunks = sizes.max_bs * -(-sizes.context // chunk)
        yield Buffer("local_block_table", "int32", (chunks, -(-chunk // sizes.page)))
    if sizes.crosses:
        yield Buffer("encoder_page_table", "int32", (sizes.max_bs, sizes.context))
    if sizes.width > 1 and backend in _ASKED_BY_DRAFTS:
        yield from _speculative_tables(sizes.max_bs, sizes.context, sizes.page, sizes.topk)
        if sizes.windows.apart:
            tables = _BEHIND_WINDOWS.get(backend, _SPECULATIVE_TABLES - 1) * sizes.max_bs
            yield Buffer("speculative_swa_page_tables", "int32", (tables, pages))


def _speculative_tables(rows: int, context: int, page: int, topk: int) -> Iterator[Buffer]:
    """init_cuda_graph_state of flashattention_backend.py and trtllm_mha_backend.py, whosever it is."""
    yield Buffer("speculative_page_tables", "int32", (_SPECULATIVE_TABLES * rows, -(-context // page)))
    if topk > 1:
        yield Buffer("tree_page_tables", "int32", (_TREE_TABLES * rows, context))


def draft_backend_buffers(backend: str, steps: int) -> Iterator[Buffer]:
    """Made with the backends of a draft that is a model of its own: its worker's, the one that catches up,
    and one for every step but the last, which prefills nothing. Workspaces are the target's."""
    if backend in ("flashinfer", "trtllm_mha"):
        wrappers = 2 * _WRAPPERS + (steps - 1) * _STEP_WRAPPERS
        yield _bytes("draft_wrappers", wrappers * _WRAPPER)


@dataclass(frozen=True, slots=True)
class DraftGraphSizes:
    """`graphs` of up to `max_bs` requests; `heads` of one rank, each `head_dim` wide."""

    graphs: int
    max_bs: int
    steps: int
    topk: int
    width: int
    context: int
    page: int
    heads: int
    head_dim: int
    split_tile: int | None = None
    catches_up: bool = True  # in graphs
    masks: bool = False  # of Triton's, whatever a draft verifies; FlashInfer's has one in all releases


def draft_graph_buffers(backend: str, sizes: DraftGraphSizes) -> Iterator[Buffer]:
    """init_cuda_graph_state of a draft's backends: of all its steps but the last, and of the catch-up where
    that is captured."""
    backends, branches = sizes.steps - 1, sizes.max_bs * sizes.topk
    rows, more = sizes.max_bs * sizes.width, int(sizes.catches_up)
    if backend in ("triton", "flashinfer"):
        dtype = "int64" if backend == "triton" else "int32"
        if backends:
            yield Buffer("draft_kv_indices", dtype, (sizes.steps, branches * sizes.context))
        if more:
            yield Buffer("draft_extend_kv_indices", dtype, (rows * sizes.context,))
            if sizes.masks or backend == "flashinfer":
                yield _bytes("draft_extend_custom_mask", rows * sizes.context)
    if backend == "triton":
        splits = sizes.heads * key_splits(sizes.context, latent=False, tile=sizes.split_tile)
        for count, tokens in ((backends, branches), (more, rows)):
            yield Buffer("draft_attn_logits", "float32", (count, tokens, splits, sizes.head_dim))
            yield Buffer("draft_attn_lse", "float32", (count, tokens, splits))
    elif backend == "flashinfer":
        yield _bytes("draft_graph_wrappers", (backends + more) * sizes.graphs * _WRAPPER)
    else:
        tables = (backends + more) * sizes.max_bs
        yield Buffer("draft_page_table", "int32", (tables, -(-sizes.context // sizes.page)))
        yield from _speculative_tables(tables, sizes.context, sizes.page, sizes.topk)


def _bytes(name: str, size: int) -> Buffer:
    return Buffer(name, "uint8", (size,))
