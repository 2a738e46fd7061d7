"""What attention allocates for graphs of decodes, as init_cuda_graph_state of SGLang's classes does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.server.attention_buffers import NO_WINDOWS, Buffer, Windows
from runtime.server.config import RuntimeConfig
from runtime.server.graph_buffers import (
    GraphSizes,
    Latents,
    decode_graph_buffers,
    draft_graph_buffers,
    masked_by,
    state_graph_buffers,
)
from runtime.server.releases import release_named
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.units import MIB
from runtime.server.windows import windows_of
from tests.runtime.starts import make_preset

LATENTS = Latents(576, "bfloat16")
RESULTS = {
    1: [Buffer("attn_logits", "float32", (3, 2, 8, 64)), Buffer("attn_lse", "float32", (3, 2, 8))],
    2: [Buffer("attn_logits", "float32", (6, 2, 8, 64)), Buffer("attn_lse", "float32", (6, 2, 8))],
}


def _bytes(name: str, mib: int) -> Buffer:
    return Buffer(name, "uint8", (mib * MIB,))


def _sizes(width: int = 1, page: int = 16, **more: object) -> GraphSizes:
    told = {"drafted": width > 1, "heads": 2, "value_width": 64, **more}
    return GraphSizes(3, width, 130, page, 5, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backend", "width", "page", "buffers"),
    [
        ("triton", 1, 1, [*RESULTS[1], Buffer("cuda_graph_kv_indices", "int64", (3 * 130,))]),
        (
            "triton",
            2,
            1,
            [
                *RESULTS[2],
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
        ("dsa", 1, 64, [Buffer("page_table", "int32", (3, 3))]),
        (
            "trtllm_mha",
            2,
            32,
            [Buffer("page_table", "int32", (3, 5)), Buffer("speculative_page_tables", "int32", (9, 5))],
        ),
        ("flashmla", 1, 64, [Buffer("page_table", "int32", (3, 4))]),
        ("cutlass_mla", 1, 128, [Buffer("page_table", "int32", (3, 2))]),
        (
            "fa3",
            2,
            1,
            [
                Buffer("page_table", "int32", (3, 130)),
                Buffer("strided_indices", "int64", (3 * 130,)),
                Buffer("speculative_page_tables", "int32", (9, 130)),
            ],
        ),
        ("fa3", 1, 16, [Buffer("page_table", "int32", (3, 9)), Buffer("strided_indices", "int64", (9,))]),
    ],
)
def test_buffers_of_decode_graphs(backend: str, width: int, page: int, buffers: list[Buffer]) -> None:
    assert list(decode_graph_buffers(backend, _sizes(width, page))) == buffers


@pytest.mark.parametrize("backend", ["dsa", "nsa"])
def test_sparse_attention_reads_tokens_beside_drafts_and_before_0_5_15(backend: str) -> None:
    found = decode_graph_buffers(backend, _sizes(2, 64, by_tokens=True))
    assert [*found] == [Buffer("page_table", "int32", (6, 130))]
    assert not release_named("0.5.14").release.reads_pages and release_named("0.5.15").release.reads_pages


@pytest.mark.parametrize("backend", ["trtllm_mla", "cutedsl_mla"])
def test_kernels_for_latents_pad_queries_beside_flashinfer_s_indices(backend: str) -> None:
    assert list(decode_graph_buffers(backend, _sizes(2, 32, latents=LATENTS))) == [
        Buffer("page_table", "int32", (3, 4096 // 32)),
        Buffer("padded_queries", "bfloat16", (6, 2, 576)),
        Buffer("answers", "bfloat16", (6, 2, 512)),
        Buffer("cuda_graph_kv_indices", "int32", (3 * 130,)),
    ]


def test_flashinfer_masks_no_latents() -> None:
    found = decode_graph_buffers("flashinfer", _sizes(2, latents=LATENTS))
    assert list(found) == [
        Buffer("cuda_graph_kv_indices", "int32", (3 * 130,)),
        _bytes("cuda_graph_wrappers", 40),
    ]


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
                Buffer("local_query_start_loc", "int32", (3 * 3 + 1,)),
                Buffer("local_seqused_k", "int32", (3 * 3,)),
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
    plain = [*decode_graph_buffers(backend, _sizes())]
    found = decode_graph_buffers(backend, _sizes(windows=windows))
    assert [one for one in found if one not in plain] == more


def test_values_behind_windows_of_another_width_have_results_of_their_own() -> None:
    found = decode_graph_buffers("triton", _sizes(windows=Windows(32), window_width=16))
    assert Buffer("swa_attn_logits", "float32", (3, 2, 8, 16)) in [*found]


def test_since_0_5_19_each_multiprocessor_has_partial_results() -> None:
    found = decode_graph_buffers("triton", _sizes(lean=132))
    assert Buffer("lean_results", "float32", (132, 16, 66)) in [*found]
    assert not release_named("0.5.18").release.has_lean_decodes
    assert release_named("0.5.19").release.has_lean_decodes


@pytest.mark.parametrize(("backend", "tables"), [("fa3", 2), ("trtllm_mha", 3)])
def test_drafts_look_tokens_behind_a_window_up_by_tables_of_their_own(backend: str, tables: int) -> None:
    last = [*decode_graph_buffers(backend, _sizes(2, 1, windows=Windows(32, apart=True)))][-1]
    assert last == Buffer("speculative_swa_page_tables", "int32", (tables * 3, 130))


def test_before_0_5_17_triton_has_a_mask_without_drafts() -> None:
    sizes = _sizes(masks=release_named("0.5.16").release.masks_decodes)
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


DRAFTED = GraphSizes(5, 4, 130, 16, 7, drafted=True, heads=2, value_width=64, verified=4)


def _of(part: str, *buffers: Buffer) -> list[Buffer]:
    return [replace(one, name=f"draft {part}'s {one.name}") for one in buffers]


def _tables(topk: int) -> list[Buffer]:
    trees = [Buffer("tree_page_tables", "int32", (10, 130)), Buffer("tree_branches", "int32", (240,))]
    return [Buffer("speculative_page_tables", "int32", (15, 9)), *(trees if topk > 1 else [])]


@pytest.mark.parametrize(
    ("backend", "topk", "shared", "step", "catch_up"),
    [
        (
            "triton",
            1,
            [Buffer("draft_kv_indices", "int64", (3, 5 * 130))],
            [Buffer("attn_logits", "float32", (5, 2, 8, 64)), Buffer("attn_lse", "float32", (5, 2, 8))],
            [
                Buffer("attn_logits", "float32", (20, 2, 8, 64)),
                Buffer("attn_lse", "float32", (20, 2, 8)),
                Buffer("cuda_graph_kv_indices", "int64", (20 * 130,)),
            ],
        ),
        (
            "flashinfer",
            4,
            [Buffer("draft_kv_indices", "int32", (3, 20 * 130))],
            [_bytes("cuda_graph_wrappers", 7 * 8)],
            [
                Buffer("cuda_graph_kv_indices", "int32", (20 * 130,)),
                Buffer("cuda_graph_custom_mask", "uint8", (20 * 130,)),
                _bytes("cuda_graph_wrappers", 7 * 8),
            ],
        ),
        *(
            (
                backend,
                topk,
                [],
                [Buffer("page_table", "int32", (5, 9)), *strides, *_tables(topk)],
                [Buffer("page_table", "int32", (5, 9)), *strides, *_tables(topk)],
            )
            for backend, topk, strides in (
                ("fa3", 4, [Buffer("strided_indices", "int64", (27,))]),
                ("trtllm_mha", 1, []),
            )
        ),
    ],
)
def test_buffers_of_a_draft_s_graphs(
    backend: str, topk: int, shared: list[Buffer], step: list[Buffer], catch_up: list[Buffer]
) -> None:
    """Three steps, whose last has no backend, and a catch-up of four tokens a request."""
    sizes = replace(DRAFTED, topk=topk)
    steps = [*shared, *_of("step 0", *step), *_of("step 1", *step)]
    assert list(draft_graph_buffers(backend, sizes, 3, False)) == steps
    assert list(draft_graph_buffers(backend, sizes, 3, True)) == [*steps, *_of("catch-up", *catch_up)]


@pytest.mark.parametrize(
    ("release", "windows", "topk", "places"),
    [
        ("0.5.15", Windows(64), 2, 130),
        ("0.5.16", Windows(64), 2, 134),
        ("0.5.23", Windows(64, apart=True), 4, 134),
        ("0.5.23", Windows(64), 1, None),
        ("0.5.23", NO_WINDOWS, 4, None),
    ],
)
def test_each_token_of_a_tree_has_a_table_behind_a_window(
    release: str, windows: Windows, topk: int, places: int | None
) -> None:
    """As Step 3.5 beside NGRAM holds it in SGLang's own classes: python -m tests.oracle.random_attention."""
    spare = release_named(release).release.spares_tree_places
    sizes = replace(DRAFTED, topk=topk, windows=windows, spare=spare)
    found = [one for one in decode_graph_buffers("fa3", sizes) if one.name == "tree_swa_page_table"]
    assert found == ([Buffer("tree_swa_page_table", "int32", (20, places))] if places else [])
    steps = [one.shape for one in draft_graph_buffers("fa3", sizes, 3, False) if "tree_swa" in one.name]
    assert steps == [(20, places)] * 2 if places else not steps, "as many as are verified, and not as branch"


def test_attention_by_groups_stands_in_for_any_backend() -> None:
    for backend in ("triton", "flashinfer"):
        found = [*decode_graph_buffers(backend, _sizes(group=4, page=64))]
        assert found == [Buffer("compressed_page_table", "int32", (3, 3))], "33 groups, 16 to a page"


def test_trtllm_kept_strides_in_old_releases() -> None:
    sizes = _sizes(strided=release_named("0.5.13").release.strided_attention)
    strides = Buffer("strided_indices", "int64", (9,))
    assert list(decode_graph_buffers("trtllm_mha", sizes)) == [Buffer("page_table", "int32", (3, 9)), strides]
    assert "trtllm_mha" not in release_named("0.5.14").release.strided_attention


def test_steps_over_latents_share_what_flashinfer_looks_up() -> None:
    sizes = replace(DRAFTED, latents=LATENTS)
    names = [one.name for one in draft_graph_buffers("trtllm_mla", sizes, 2, False)]
    parts = ("page_table", "padded_queries", "answers")
    assert names == ["draft_kv_indices", *(f"draft step 0's {one}" for one in parts)]


def test_triton_once_masked_what_a_draft_catches_up_with() -> None:
    for masks in (True, False):
        sizes = replace(DRAFTED, masks=masks)
        names = [one.name for one in draft_graph_buffers("triton", sizes, 3, True)]
        assert ("draft catch-up's cuda_graph_custom_mask" in names) == masks


def test_each_number_of_requests_has_indices_of_its_states() -> None:
    """Five tensors each, of which torch gives none less than 512 bytes."""
    (found,) = state_graph_buffers(128, 1)
    assert found.shape == ((128 * 5 + 1) * 512,), "the last begins at 129 places"


@pytest.mark.parametrize(
    ("backend", "release", "topk", "masked"),
    [
        ("fa3", "0.5.15", 4, False),
        ("fa3", "0.5.16", 1, True),
        ("fa3", "0.5.17", 1, False),
        ("fa3", "0.5.17", 2, True),
        ("trtllm_mla", "0.5.12", 1, False),
        ("trtllm_mla", "0.5.13", 1, True),
        ("trtllm_mla", "0.5.17", 1, False),
        ("flashmla", "0.5.16", 1, True),
    ],
)
def test_which_backends_mask_what_drafts_bring(backend: str, release: str, topk: int, masked: bool) -> None:
    drafts = SpeculativeConfig("EAGLE", 3, topk, 4)
    backends = masked_by(RuntimeConfig(sglang_version=release, speculative=drafts))
    names = [
        one.name for one in decode_graph_buffers(backend, replace(DRAFTED, masked=backends, latents=LATENTS))
    ]
    assert ("custom_mask" in names) == masked
