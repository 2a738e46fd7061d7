"""What EmbeddingGemma's servers become, as each release's own functions say (`tests/oracle`)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from runtime.server.shape import Server
from tests.server.servers import B200, H200, VERSIONS, changed_in, checkpoint, server

_FILE = checkpoint("Gemma3TextModel", "gemma3_text", 2048, use_bidirectional_attention=True)


def _of_each(gpu: str, **flags: Any) -> list[Server]:
    return [server(_FILE, gpu, version, **flags) for version in VERSIONS]


def test_it_embeds_whole_prompts_since_0_5_17() -> None:
    found = [(one.embeds, one.chunked_prefill_size, len(one.decode_graphs)) for one in _of_each(H200)]
    assert changed_in(found) == {"12": (False, 8192, 36), "17": (True, -1, 0)}


def test_prefills_are_captured_for_eight_of_the_longest() -> None:
    assert changed_in([one.prefill_graphs[-1] for one in _of_each(H200)])["17"] == 16384
    assert server({**_FILE, "max_position_embeddings": 20480}).prefill_graphs[-1] == 20480
    assert server(_FILE, cuda_graph_max_bs_prefill=64).prefill_graphs[-1] == 64
    assert server(_FILE, disable_prefill_cuda_graph=True).prefill_graphs == ()


@pytest.mark.parametrize(
    ("gpu", "flags", "kept"),
    [
        (H200, {}, {"12": False, "17": True}),
        (H200, {"attention_backend": "triton"}, {"12": False}),
        (H200, {"prefill_attention_backend": "fa4"}, {"12": False, "17": True}),
        (B200, {}, {"12": False, "17": True, "19": False}),
        (B200, {"attention_backend": "fa4", "page_size": 128}, {"12": False, "17": True}),
        (B200, {"attention_backend": "trtllm_mha"}, {"12": False}),
        ("L40S", {}, {"12": False}),
    ],
)
def test_on_flash_attention_it_keeps_nothing(gpu: str, flags: dict[str, Any], kept: dict[str, bool]) -> None:
    assert changed_in([one.keeps_nothing for one in _of_each(gpu, **flags)]) == kept


def test_a_gemma_that_sees_what_is_before_it_is_another() -> None:
    found = server({**_FILE, "use_bidirectional_attention": False})
    assert not found.embeds and found.chunked_prefill_size > 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"kv_cache_dtype": "mxfp8"}, "kv-cache-dtype mxfp8"), ({"attn_cp_size": 2, "tp_size": 2}, "attn")],
)
def test_what_its_pool_of_nothing_cannot_be_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        server(_FILE, **flags)
