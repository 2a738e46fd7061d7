"""What attention backends allocate beside the KV pool, as their constructors in SGLang 0.5.17 do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.server.attention_buffers import (
    NO_WINDOWS,
    Buffer,
    DraftGraphSizes,
    GraphSizes,
    Windows,
    Workspaces,
    backend_buffers,
    decode_graph_buffers,
    draft_backend_buffers,
    draft_graph_buffers,
    key_splits,
)
from runtime.server.releases import release_named
from runtime.server.units import MIB
from runtime.server.windows import windows_of
from tests.runtime.starts import make_preset


def _bytes(name: str, mib: int) -> Buffer:
    return Buffer(name, "uint8", (mib * MIB,))


def test_a_workspace_is_as_large_as_it_is_told_to_be() -> None:
    sizes = Workspaces(flashinfer=2048 * MIB, trtllm_mha=64 * MIB)
    found = {one.name: one.shape[0] for one in backend_buffers("trtllm_mha", 7, 10, sizes)}
    assert (found["flashinfer_workspace"], found["trtllm_mha_workspace"]) == (2048 * MIB, 64 * MIB)
    (only,) = backend_buffers("dsa", 7, 10, Workspaces(flashinfer=64 * MIB))
    assert only.shape == (64 * MIB,)


@pytest.mark.parametrize(
    ("context", "latent", "tile", "splits"),
    [(40960, False, None, 8), (40960, False, 256, 160), (40961, True, 256, 161), (163840, True, None, 256)],
)
def test_keys_are_split_by_how_many_they_are_where_no_batch_may_matter(
    context: int, latent: bool, tile: int | None, splits: int
) -> None:
    assert key_splits(context, latent, tile) == splits


FLASHINFER = [_bytes("flashinfer_workspace", 384), _bytes("flashinfer_wrappers", 32)]


@pytest.mark.parametrize(
    ("backend", "major", "buffers"),
    [
        (
            "triton",
            9,
            [
                Buffer("kv_indptr", "int32", (8,)),
                Buffer("qo_indptr", "int64", (8,)),
                Buffer("mask_indptr", "int64", (8,)),
            ],
        ),
        ("fa3", 9, []),
        ("flashinfer", 9, FLASHINFER),
        ("trtllm_mha", 10, [*FLASHINFER, _bytes("trtllm_mha_workspace", 512)]),
        ("trtllm_mla", 10, [*FLASHINFER, _bytes("trtllm_mla_workspace", 150)]),
        ("dsa", 9, []),
        ("dsa", 10, [_bytes("dsa_trtllm_workspace", 384)]),
    ],
)
def test_buffers_of_a_backend(backend: str, major: int, buffers: list[Buffer]) -> None:
    assert list(backend_buffers(backend, 7, major)) == buffers


@pytest.mark.parametrize(
    ("backend", "width", "page", "buffers"),
    [
        ("triton", 1, 1, [Buffer("cuda_graph_kv_indices", "int64", (3 * 130,))]),
        (
            "triton",
            2,
            1,
            [
                Buffer("cuda_graph_kv_indices", "int64", (6 * 130,)),
                Buffer("cuda_graph_custom_mask", "uint8", (6 * 130,)),
            ],
        ),
        (
            "flashinfer",
            2,
            1,
            [
                Buffer("cuda_graph_kv_indices", "int32", (6 * 130,)),
                Buffer("cuda_graph_custom_mask", "uint8", (6 * 130,)),
                _bytes("cuda_graph_wrappers", 40),
            ],
        ),
        ("dsa", 2, 64, [Buffer("page_table", "int32", (6, 130))]),
        ("dsa", 1, 64, [Buffer("page_table", "int32", (3, 3))]),
        (
            "trtllm_mha",
            2,
            32,
            [
                Buffer("page_table", "int32", (3, 5)),
                Buffer("speculative_page_tables", "int32", (9, 5)),
            ],
        ),
        ("trtllm_mla", 2, 32, [Buffer("page_table", "int32", (3, 4096 // 32))]),
        (
            "fa3",
            2,
            1,
            [
                Buffer("page_table", "int32", (3, 130)),
                Buffer("speculative_page_tables", "int32", (9, 130)),
            ],
        ),
        ("fa3", 1, 16, [Buffer("page_table", "int32", (3, 9))]),
    ],
)
def test_buffers_of_decode_graphs(backend: str, width: int, page: int, buffers: list[Buffer]) -> None:
    sizes = GraphSizes(max_bs=3, width=width, context=130, page=page, graphs=5)
    assert list(decode_graph_buffers(backend, sizes)) == buffers


@pytest.mark.parametrize(
    ("backend", "windows", "more"),
    [
        ("triton", Windows(32), [Buffer("cuda_graph_window_kv_indices", "int64", (3 * 32,))]),
        ("fa3", Windows(32), []),
        ("fa3", Windows(32, apart=True), [Buffer("swa_page_table", "int32", (3, 9))]),
        ("trtllm_mha", Windows(32, apart=True), [Buffer("swa_page_table", "int32", (3, 9))]),
        (
            "fa3",
            Windows(64, apart=True, chunk=64),
            [
                Buffer("swa_page_table", "int32", (3, 9)),
                Buffer("local_block_table", "int32", (3 * 3, 64 // 16)),
            ],
        ),
        (
            "flashinfer",
            Windows(32),
            [Buffer("cuda_graph_kv_indices", "int32", (2 * 3 * 130,)), _bytes("cuda_graph_wrappers", 80)],
        ),
    ],
)
def test_layers_behind_a_window_have_tables_of_their_own(
    backend: str, windows: Windows, more: list[Buffer]
) -> None:
    sizes = GraphSizes(max_bs=3, width=1, context=130, page=16, graphs=5)
    plain = [*decode_graph_buffers(backend, sizes)]
    found = decode_graph_buffers(backend, replace(sizes, windows=windows))
    assert [one for one in found if one not in plain] == more


@pytest.mark.parametrize(("backend", "tables"), [("fa3", 2), ("trtllm_mha", 3)])
def test_drafts_look_tokens_behind_a_window_up_by_tables_of_their_own(backend: str, tables: int) -> None:
    sizes = GraphSizes(3, 2, 130, 1, 5, windows=Windows(32, apart=True))
    last = [*decode_graph_buffers(backend, sizes)][-1]
    assert last == Buffer("speculative_swa_page_tables", "int32", (tables * 3, 130))


def test_before_0_5_17_triton_has_a_mask_without_drafts() -> None:
    sizes = GraphSizes(3, 1, 130, 1, 5, masks=release_named("0.5.16").release.masks_decodes)
    assert Buffer("cuda_graph_custom_mask", "uint8", (390,)) in [*decode_graph_buffers("triton", sizes)]
    assert not release_named("0.5.17").release.masks_decodes


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("gpt-oss-20b", Windows(128, apart=True)),
        ("Qwen3-30B-A3B", NO_WINDOWS),
        ("Mixtral-8x7B", NO_WINDOWS),
    ],
)
def test_whose_windows_are_told(name: str, windows: Windows) -> None:
    assert windows_of(make_preset(name)) == windows


@pytest.mark.parametrize(
    ("backend", "steps", "buffers"),
    [
        ("triton", 3, []),
        ("fa3", 3, []),
        ("flashinfer", 3, [_bytes("draft_wrappers", (4 + 4 + 2 * 2) * 8)]),
        ("trtllm_mha", 1, [_bytes("draft_wrappers", (4 + 4) * 8)]),
    ],
)
def test_buffers_of_a_draft_s_backends(backend: str, steps: int, buffers: list[Buffer]) -> None:
    assert list(draft_backend_buffers(backend, steps)) == buffers


@pytest.mark.parametrize(
    ("backend", "topk", "buffers"),
    [
        (
            "triton",
            1,
            [
                Buffer("draft_kv_indices", "int64", (3, 5 * 130)),
                Buffer("draft_extend_kv_indices", "int64", (20 * 130,)),
                Buffer("draft_attn_logits", "float32", (2, 5, 2 * 8, 64)),
                Buffer("draft_attn_lse", "float32", (2, 5, 2 * 8)),
                Buffer("draft_attn_logits", "float32", (1, 20, 2 * 8, 64)),
                Buffer("draft_attn_lse", "float32", (1, 20, 2 * 8)),
            ],
        ),
        (
            "flashinfer",
            4,
            [
                Buffer("draft_kv_indices", "int32", (3, 20 * 130)),
                Buffer("draft_extend_kv_indices", "int32", (20 * 130,)),
                Buffer("draft_extend_custom_mask", "uint8", (20 * 130,)),
                _bytes("draft_graph_wrappers", 3 * 7 * 8),
            ],
        ),
        (
            "fa3",
            4,
            [
                Buffer("draft_page_table", "int32", (15, 9)),
                Buffer("speculative_page_tables", "int32", (45, 9)),
                Buffer("tree_page_tables", "int32", (30, 130)),
            ],
        ),
        (
            "trtllm_mha",
            1,
            [
                Buffer("draft_page_table", "int32", (15, 9)),
                Buffer("speculative_page_tables", "int32", (45, 9)),
            ],
        ),
    ],
)
def test_buffers_of_a_draft_s_graphs(backend: str, topk: int, buffers: list[Buffer]) -> None:
    """Three steps, whose last has no backend, and a catch-up of four tokens a request."""
    sizes = DraftGraphSizes(
        7, max_bs=5, steps=3, topk=topk, width=4, context=130, page=16, heads=2, head_dim=64
    )
    assert list(draft_graph_buffers(backend, sizes)) == buffers


def test_a_draft_that_catches_up_without_graphs_holds_nothing_for_it() -> None:
    sizes = DraftGraphSizes(7, 5, 3, 1, 4, 130, 16, 2, 64, catches_up=False, masks=True)
    for backend in ("triton", "flashinfer"):
        names = {one.name for one in draft_graph_buffers(backend, sizes)}
        assert "draft_kv_indices" in names and not {one for one in names if one.startswith("draft_extend")}
    tables = [one.shape for one in draft_graph_buffers("fa3", sizes)]
    assert tables == [(2 * 5, 9), (3 * 2 * 5, 9)]


def test_triton_once_masked_what_a_draft_catches_up_with() -> None:
    for masks in (True, False):
        sizes = DraftGraphSizes(7, 5, 3, 1, 4, 130, 16, 2, 64, masks=masks)
        names = [one.name for one in draft_graph_buffers("triton", sizes)]
        assert ("draft_extend_custom_mask" in names) == masks
