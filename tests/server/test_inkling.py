"""What SGLang makes of servers of Inkling, by release and GPU."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from tests.server.asking import model

_TEXT = {**model("llama").hf, "model_type": "inkling_model"}
_CONFIG = {
    "architectures": ["InklingForConditionalGeneration"],
    "model_type": "inkling_mm_model",
    "dtype": "bfloat16",
    "text_config": _TEXT,
}


def _server(gpu: str, release: str, asked: dict[str, Any]) -> Server:
    told = changed(Asked(), {"model_path": "models/m", **asked})
    return resolve(told, Checkpoint(_CONFIG), None, find_gpu(gpu), release_named(release).release, {})


@pytest.mark.parametrize(
    ("gpu", "release", "asked", "attention", "page"),
    [
        ("B200", "0.5.16", {}, "fa4", 128),
        ("H200", "0.5.21", {}, "triton", 1),
        ("H200", "0.5.22", {}, "fa4", 1),
        ("RTX PRO 6000", "0.5.23", {}, "triton", 1),
        ("H200", "0.5.23", {"attention_backend": "fa3"}, "fa3", 1),
    ],
)
def test_it_attends_on_fa4_where_the_release_has_it(
    gpu: str, release: str, asked: dict[str, Any], attention: str, page: int
) -> None:
    server = _server(gpu, release, asked)
    assert (server.decode_attention_backend, server.page_size) == (attention, page)


@pytest.mark.parametrize(
    ("release", "asked", "shares"),
    [
        ("0.5.19", {}, (0.1, 0.1)),
        ("0.5.19", {"swa_full_tokens_ratio": 0.8, "mamba_full_memory_ratio": 0.9}, (0.1, 0.1)),
        ("0.5.20", {"swa_full_tokens_ratio": 0.8, "mamba_full_memory_ratio": 0.9}, (0.8, 0.9)),
        ("0.5.23", {"swa_full_tokens_ratio": 0.5}, (0.5, 0.1)),
    ],
)
def test_its_windows_and_states_have_a_tenth(
    release: str, asked: dict[str, Any], shares: tuple[float, float]
) -> None:
    server = _server("B200", release, asked)
    assert (server.sliding_share, server.states.share) == shares and server.states.extra_buffer


@pytest.mark.parametrize(
    ("gpu", "release", "asked", "are_whole"),
    [
        ("H200", "0.5.23", {}, True),
        ("H200", "0.5.23", {"enable_multimodal": True, "disaggregation_mode": "decode"}, True),
        ("H200", "0.5.23", {"disable_prefill_cuda_graph": True}, False),
        ("H200", "0.5.23", {"cuda_graph_backend_prefill": "breakable"}, False),
        ("H200", "0.5.23", {"enable_unified_memory": True}, True),
        ("H200", "0.5.21", {"enable_unified_memory": True}, False),
        ("H200", "0.5.18", {"enable_unified_memory": True}, True),
    ],
)
def test_its_prefills_are_captured_whole(
    gpu: str, release: str, asked: dict[str, Any], are_whole: bool
) -> None:
    server = _server(gpu, release, asked)
    assert (server.whole_prefills and bool(server.prefill_graphs)) is are_whole


@pytest.mark.parametrize(
    ("release", "strategy", "refused"),
    [
        ("0.5.20", "no_buffer", False),
        ("0.5.21", "no_buffer", True),
        ("0.5.23", "extra_buffer", False),
    ],
)
def test_how_its_states_are_kept_is_looked_at_since_0_5_21(
    release: str, strategy: str, refused: bool
) -> None:
    def started() -> Server:
        return _server("B200", release, {"mamba_radix_cache_strategy": strategy})

    if not refused:
        assert started().states.extra_buffer is (strategy == "extra_buffer")
        return
    with pytest.raises(ConfigError, match="no_buffer: needs --page-size 1"):
        started()
