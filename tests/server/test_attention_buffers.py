"""What attention backends allocate beside the KV pool, as the constructors of SGLang's classes do."""

from __future__ import annotations

import pytest

from runtime.server.attention_buffers import (
    WORKSPACES,
    Buffer,
    Workspaces,
    backend_buffers,
    counting_buffers,
    draft_backend_buffers,
    key_splits,
)
from runtime.server.releases import release_named
from runtime.server.units import MIB


def _bytes(name: str, mib: int) -> Buffer:
    return Buffer(name, "uint8", (mib * MIB,))


def test_a_workspace_is_as_large_as_it_is_told_to_be() -> None:
    sizes = Workspaces(flashinfer=2048 * MIB, trtllm_mha=64 * MIB)
    found = {one.name: one.shape[0] for one in backend_buffers("trtllm_mha", 7, sizes)}
    assert (found["flashinfer_workspace"], found["trtllm_mha_workspace"]) == (2048 * MIB, 64 * MIB)
    first, _ = backend_buffers("dsa", 7, Workspaces(flashinfer=64 * MIB, has_sparse=True))
    assert first.shape == (64 * MIB,)


@pytest.mark.parametrize(
    ("context", "latent", "sizes", "splits"),
    [
        (40960, False, Workspaces(), 8),
        (40960, False, Workspaces(kv_splits=16), 16),
        (40960, False, Workspaces(split_tile=256), 160),
        (40961, True, Workspaces(split_tile=256), 161),
        (163840, True, Workspaces(), 256),
        (163840, True, Workspaces(processors=78), 128),
        (163840, True, Workspaces(processors=128), 128),
        (163840, True, Workspaces(kv_splits=300), 300),
        (1000, True, Workspaces(), 32),
    ],
)
def test_keys_are_split_by_how_many_they_are_where_no_batch_may_matter(
    context: int, latent: bool, sizes: Workspaces, splits: int
) -> None:
    assert key_splits(context, latent, sizes) == splits


DSA = [Buffer("dsa_rows", "int32", (1, 16384))]
FLASHINFER = [_bytes("flashinfer_workspace", 384), _bytes("flashinfer_wrappers", 32)]


SPARSE = Workspaces(has_sparse=True, counts_sparse=True)


@pytest.mark.parametrize(
    ("backend", "sizes", "buffers"),
    [
        (
            "triton",
            WORKSPACES,
            [
                Buffer("kv_indptr", "int32", (8,)),
                Buffer("qo_indptr", "int64", (8,)),
                Buffer("mask_indptr", "int64", (8,)),
            ],
        ),
        ("fa3", SPARSE, []),
        ("flashinfer", WORKSPACES, FLASHINFER),
        ("trtllm_mha", WORKSPACES, [*FLASHINFER, _bytes("trtllm_mha_workspace", 512)]),
        ("trtllm_mla", WORKSPACES, [*FLASHINFER, _bytes("trtllm_mla_workspace", 150)]),
        ("flashmla", SPARSE, FLASHINFER),
        ("cutedsl_mla", WORKSPACES, [*FLASHINFER, _bytes("cutedsl_mla_workspace", 150)]),
        ("dsa", WORKSPACES, DSA),
        ("dsa", SPARSE, [_bytes("dsa_workspace", 384), *DSA]),
    ],
)
def test_buffers_of_a_backend(backend: str, sizes: Workspaces, buffers: list[Buffer]) -> None:
    assert list(backend_buffers(backend, 7, sizes)) == buffers


@pytest.mark.parametrize(
    ("backend", "steps", "buffers"),
    [
        ("triton", 3, []),
        ("fa3", 3, []),
        ("flashinfer", 3, [FLASHINFER[0], _bytes("draft_wrappers", (4 + 4 + 2 * 2) * 8)]),
        (
            "trtllm_mha",
            1,
            [FLASHINFER[0], _bytes("draft_wrappers", (4 + 4) * 8), _bytes("trtllm_mha_workspace", 512)],
        ),
        ("dsa", 3, [Buffer("draft_dsa_rows", "int32", (4, 16384))]),
    ],
)
def test_buffers_of_a_draft_s_backends(backend: str, steps: int, buffers: list[Buffer]) -> None:
    assert list(draft_backend_buffers(backend, steps)) == buffers


def test_rows_of_a_sparse_draft_stand_beside_those_of_its_target() -> None:
    drafts = {one.name for one in draft_backend_buffers("dsa", 3)}
    assert drafts.isdisjoint(one.name for one in backend_buffers("dsa", 7))


@pytest.mark.parametrize(
    ("backend", "release", "sizes", "counters"),
    [
        ("trtllm_mla", "0.5.16", WORKSPACES, []),
        ("trtllm_mla", "0.5.17", WORKSPACES, [Buffer("trtllm_mla_counters", "int32", (8192, 16))]),
        ("trtllm_mha", "0.5.17", WORKSPACES, []),
        ("trtllm_mha", "0.5.18", WORKSPACES, [Buffer("trtllm_mha_counters", "int32", (8192, 16))]),
        ("dsa", "0.5.16", SPARSE, []),
        ("dsa", "0.5.23", WORKSPACES, []),
        ("dsa", "0.5.23", SPARSE, [Buffer("dsa_counters", "int32", (8192, 16))]),
        ("fa3", "0.5.23", SPARSE, []),
    ],
)
def test_whose_kernels_count(backend: str, release: str, sizes: Workspaces, counters: list[Buffer]) -> None:
    assert [*counting_buffers(backend, 7, 16, sizes, release_named(release).release)] == counters


def test_latents_have_a_workspace_apart_from_heads() -> None:
    """A draft over heads beside a target over latents makes its own."""
    for latent, name in ((False, "flashinfer_workspace"), (True, "flashinfer_mla_workspace")):
        target, draft = (
            next(iter(backend_buffers("flashinfer", 7, latent=latent))),
            next(iter(draft_backend_buffers("flashinfer", 3, latent=latent))),
        )
        assert (target.name, draft.name) == (name, name)
