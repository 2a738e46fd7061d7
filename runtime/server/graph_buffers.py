"""What SGLang's attention holds for graphs of decodes: those of a target, and those of a draft's steps and of
its catching up, which are made by the same classes. init_cuda_graph_state of srt/layers/attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runtime.server.attention_buffers import (
    KV_SPLITS,
    LATENTS_BY_TRTLLM,
    NO_WINDOWS,
    SPARSE,
    WRAPPER,
    Buffer,
    Windows,
    in_bytes,
    key_splits,
    wrappers_each,
)
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.releases import FLASH_ATTENTION
from runtime.server.sizing import DTYPE_BYTES
from runtime.server.start_sizes import StartSizes
from runtime.server.units import KIB
from runtime.server.windows import windows_of

Role = Literal["target", "step", "catch-up"]
_ASKED_BY_DRAFTS = (*FLASH_ATTENTION, "trtllm_mha")
_SPECULATIVE_TABLES = 3  # beside a decode's: a draft's decode, a verify and a catch-up, each made by all
_SPECULATIVE_STRIDES = 2
_TREE_TABLES = 2
_TREE_LENGTHS, _TREE_PAGES = 3, 2  # of each branch beside those: topk_expand of flashattention_backend.py
_BEHIND_WINDOWS = {"trtllm_mha": 3}  # of these; others have none of a draft's decode
_LATENT_ROW = 4096  # tokens of a page table at a time, _FLASHMLA_CREATE_KV_BLOCK_SIZE
_FLASHMLA_PAGE = 64
_LATENT_ANSWER = 512  # by TRT-LLM's, whatever the rank
_LEAN_ROWS = 16  # _LEAN_BLOCK_M
_MOST_CHOSEN = 2048  # tokens, by the kernel that reads pages
_SMALLEST = KIB // 2  # bytes of torch's allocator


@dataclass(frozen=True, slots=True)
class Latents:
    """How wide a query is, and in which dtype it and what attention answers are."""

    query: int
    dtype: str


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """`graphs` of decodes of up to `max_bs` requests, each of `width` tokens; `heads` of one rank, whose
    values are so wide, those behind windows another, and their keys in so many `splits`.

    `masks`: of which tokens see which, whether or not there are drafts; `masked`: by which backends those of
    drafts; `strided`: which know where each page begins; `crosses`: to images, too; `drafted`: tokens come
    from drafts, so many of which a request has `verified` at a time; `spare`: places for those behind a
    context; `lean`: programs of a kernel that has partial results of its own."""

    max_bs: int
    width: int
    context: int
    page: int
    graphs: int
    topk: int = 1
    crosses: bool = False
    masks: bool = False
    masked: tuple[str, ...] = ()
    strided: tuple[str, ...] = FLASH_ATTENTION
    windows: Windows = NO_WINDOWS
    drafted: bool = False
    verified: int = 1
    spare: bool = False
    heads: int = 0
    value_width: int = 0
    window_width: int | None = None
    splits: int = KV_SPLITS
    lean: int = 0
    latents: Latents | None = None
    by_tokens: bool = False  # sparse attention reads its table token by token, and not page by page
    group: int | None = None  # of tokens: attention by them stands in for the backend

    @property
    def rows(self) -> int:
        return self.max_bs * self.width

    @property
    def pages(self) -> int:
        return -(-self.context // self.page)

    @property
    def groups(self) -> int:
        return -(-self.context // (self.group or 1))


def graph_sizes(
    model: ModelConfig,
    runtime: RuntimeConfig,
    start: StartSizes,
    plan: PoolPlan,
    graphs: Sequence[int],
    ranks: int,
    kv_dtype: str,
) -> GraphSizes:
    """Of a target's `model`, or of its draft's, which sees as many tokens; heads are split over `ranks`."""
    spaces, mla, context = runtime.workspaces, model.mla, start.context_length
    attention, speculative = model.main_attention, runtime.speculative
    narrow = "uint8" if DTYPE_BYTES[kv_dtype] == 1 else kv_dtype
    return GraphSizes(
        max_bs=max(graphs),
        width=start.width,
        context=plan.row_length if runtime.attention_backend in SPARSE else context,
        page=plan.page_size,
        graphs=len(graphs),
        topk=speculative.eagle_topk if speculative else 1,
        crosses=model.crosses,
        masks=runtime.release.masks_decodes,
        masked=masked_by(runtime),
        strided=runtime.release.strided_attention,
        windows=windows_of(model),
        drafted=speculative is not None,
        verified=start.width,
        spare=runtime.release.spares_tree_places,
        heads=attention.num_heads // ranks,
        value_width=mla.kv_lora_rank if mla else attention.value_width,
        window_width=_width_behind_windows(model),
        splits=key_splits(context, mla is not None, spaces),
        lean=spaces.processors if runtime.release.has_lean_decodes else 0,
        latents=Latents(mla.cache_dim, narrow) if mla else None,
        by_tokens=_reads_tokens(model, runtime),
        group=attention.pools.pool if attention.pools is not None else None,
    )


def _reads_tokens(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """dsa_drop_wide_page_table of srt/layers/attention/dsa_backend.py, of usual kernels."""
    indexer = model.mla.indexer if model.mla else None
    if indexer is None or indexer.pool > 1 or indexer.top_k > _MOST_CHOSEN:
        return True
    return runtime.speculative is not None or not runtime.release.reads_pages


def masked_by(runtime: RuntimeConfig) -> tuple[str, ...]:
    release, speculative = runtime.release, runtime.speculative
    is_tree = speculative is not None and speculative.eagle_topk > 1
    return (*release.masked_verifies, *(FLASH_ATTENTION if is_tree and release.masks_trees else ()))


def _width_behind_windows(model: ModelConfig) -> int | None:
    """Where it is another than that of the layers that see everything."""
    widths = {one.value_width for one in model.attention.values() if one.window is not None}
    others = widths - {model.main_attention.value_width} if model.mla is None else ()
    return max(others, default=None)


def decode_graph_buffers(backend: str, sizes: GraphSizes, role: Role = "target") -> Iterator[Buffer]:
    """Made for the largest decode graph and shared by all."""
    if sizes.group is not None:
        pages = -(-sizes.groups // (sizes.page // sizes.group))
        yield Buffer("compressed_page_table", "int32", (sizes.rows, pages))
        return
    if (
        sizes.drafted
        and backend in sizes.masked
        and (role == "target" or (role == "catch-up" and sizes.masks))
    ):
        yield in_bytes("custom_mask", sizes.rows * (sizes.context + sizes.width))
    if backend == "triton":
        yield from _tritons(sizes, role)
    elif backend == "flashinfer":
        yield from _flashinfers(sizes, role)
    elif backend in SPARSE:
        yield Buffer("page_table", "int32", (sizes.rows, sizes.context if sizes.by_tokens else sizes.pages))
    elif backend in LATENTS_BY_TRTLLM:
        yield from _padded(sizes, role)
    elif backend == "flashmla":
        yield Buffer("page_table", "int32", (sizes.max_bs, -(-sizes.context // _FLASHMLA_PAGE) + 1))
    else:
        yield from _page_tables(backend, sizes)


def partial_results(sizes: GraphSizes, rows: int) -> Iterator[Buffer]:
    """Of Triton's decodes, fp32: a set for every split of the keys."""
    yield Buffer("attn_logits", "float32", (rows, sizes.heads, sizes.splits, sizes.value_width))
    if sizes.window_width is not None:
        yield Buffer("swa_attn_logits", "float32", (rows, sizes.heads, sizes.splits, sizes.window_width))
    yield Buffer("attn_lse", "float32", (rows, sizes.heads, sizes.splits))
    if sizes.lean:
        width = sizes.value_width + 2
        yield Buffer("lean_results", "float32", (sizes.lean, _LEAN_ROWS, width))


def _tritons(sizes: GraphSizes, role: Role) -> Iterator[Buffer]:
    rows, window = sizes.rows, sizes.windows.tokens
    yield from partial_results(sizes, rows)
    if role != "step":
        yield Buffer("cuda_graph_kv_indices", "int64", (rows * sizes.context,))
    if window is not None:
        yield Buffer("cuda_graph_window_kv_indices", "int64", (rows * window,))
    if role != "step" and (sizes.masks or (role == "target" and sizes.drafted)):
        yield in_bytes("cuda_graph_custom_mask", rows * sizes.context)


def _flashinfers(sizes: GraphSizes, role: Role) -> Iterator[Buffer]:
    """Over latents it looks up requests, and masks nothing."""
    ways = wrappers_each(sizes.crosses, sizes.windows)
    rows = sizes.rows if sizes.latents is None else sizes.max_bs
    if role != "step":
        yield Buffer("cuda_graph_kv_indices", "int32", (ways * rows * sizes.context,))
        if sizes.latents is None:
            yield in_bytes("cuda_graph_custom_mask", rows * sizes.context)
    yield in_bytes("cuda_graph_wrappers", ways * sizes.graphs * WRAPPER)


def _padded(sizes: GraphSizes, role: Role) -> Iterator[Buffer]:
    """TRT-LLM's for latents and its kin; FlashInfer's, which they are made from, has its own."""
    assert sizes.latents is not None
    pages = -(-sizes.context // _LATENT_ROW) * _LATENT_ROW // sizes.page
    yield Buffer("page_table", "int32", (sizes.max_bs, pages))
    rows, latents = sizes.rows, sizes.latents
    yield Buffer("padded_queries", latents.dtype, (rows, sizes.heads, latents.query))
    yield Buffer("answers", latents.dtype, (rows, sizes.heads, _LATENT_ANSWER))
    if role != "step":
        yield Buffer("cuda_graph_kv_indices", "int32", (sizes.max_bs * sizes.context,))


def _page_tables(backend: str, sizes: GraphSizes) -> Iterator[Buffer]:
    max_bs, pages, windows = sizes.max_bs, sizes.pages, sizes.windows
    yield Buffer("page_table", "int32", (max_bs, pages))
    if backend in sizes.strided:
        strides = 1 + (_SPECULATIVE_STRIDES if sizes.drafted else 0)
        yield Buffer("strided_indices", "int64", (strides * pages,))
    if windows.apart and backend in _ASKED_BY_DRAFTS:
        yield Buffer("swa_page_table", "int32", (max_bs, pages))
    if windows.chunk is not None and backend == "fa3":
        chunks = max_bs * -(-sizes.context // windows.chunk)
        yield Buffer("local_query_start_loc", "int32", (chunks + 1,))
        yield Buffer("local_seqused_k", "int32", (chunks,))
        yield Buffer("local_block_table", "int32", (chunks, -(-windows.chunk // sizes.page)))
    if sizes.crosses:
        yield Buffer("encoder_page_table", "int32", (max_bs, sizes.context))
    if sizes.drafted and backend in _ASKED_BY_DRAFTS:
        yield Buffer("speculative_page_tables", "int32", (_SPECULATIVE_TABLES * max_bs, pages))
        if sizes.topk > 1:
            yield from _of_trees(sizes)
        if windows.apart:
            tables = _BEHIND_WINDOWS.get(backend, _SPECULATIVE_TABLES - 1) * max_bs
            yield Buffer("speculative_swa_page_tables", "int32", (tables, pages))


def _of_trees(sizes: GraphSizes) -> Iterator[Buffer]:
    """Whose verified tokens have a table each behind a window, whatever pool its layers have."""
    yield Buffer("tree_page_tables", "int32", (_TREE_TABLES * sizes.max_bs, sizes.context))
    tokens = sizes.max_bs * sizes.verified
    branches = sizes.max_bs * sizes.topk * (_TREE_PAGES + _TREE_LENGTHS)
    yield Buffer("tree_branches", "int32", (tokens * (sizes.verified + _TREE_LENGTHS) + branches,))
    if sizes.windows.tokens is not None:
        places = sizes.context + (sizes.verified if sizes.spare else 0)
        yield Buffer("tree_swa_page_table", "int32", (tokens, places))


def draft_graph_buffers(backend: str, sizes: GraphSizes, steps: int, catches_up: bool) -> Iterator[Buffer]:
    """Of all steps but the last, and of the catch-up where that is captured."""
    branches = replace(sizes, width=sizes.topk)
    if steps > 1 and backend in _INDEXED:
        dtype = "int64" if backend == "triton" else "int32"
        yield Buffer("draft_kv_indices", dtype, (steps, branches.rows * sizes.context))
    for step in range(steps - 1):
        for one in decode_graph_buffers(backend, branches, "step"):
            yield replace(one, name=f"draft step {step}'s {one.name}")
    if catches_up:
        for one in decode_graph_buffers(backend, sizes, "catch-up"):
            yield replace(one, name=f"draft catch-up's {one.name}")


_INDEXED = ("triton", "flashinfer", *LATENTS_BY_TRTLLM)


def state_graph_buffers(max_bs: int, width: int) -> Iterator[Buffer]:
    """Of layers with states, for each number of requests: which states they are, where each begins, and which
    of its drafted tokens follow which. init_cuda_graph_state of hybrid_linear_attn_backend.py."""
    each = sum(
        _allocated(count) + _allocated(count + 1) + 3 * _allocated(count * width)
        for count in range(1, max_bs + 1)
    )
    yield in_bytes("indices of states", each)


def _allocated(numbers: int) -> int:
    return -(-numbers * 4 // _SMALLEST) * _SMALLEST
