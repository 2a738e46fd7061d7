"""What a server is for: a phase alone, an encoder elsewhere, the scores of many items."""

from __future__ import annotations

import pytest

from runtime.server.errors import ConfigError
from tests.server.servers import LLAMA, QWEN35, checkpoint, server

CLIP = checkpoint("CLIPModel", "llama")


def test_a_role_that_is_none() -> None:
    with pytest.raises(ConfigError, match="--disaggregation-mode encode"):
        server(LLAMA, disaggregation_mode="encode")


def test_an_encoder_elsewhere() -> None:
    with pytest.raises(ConfigError, match="LlamaForCausalLM"):
        server(LLAMA, language_only=True)
    with pytest.raises(ConfigError, match="needs an encoder"):
        server(QWEN35, version="0.5.12", language_only=True)
    assert server(QWEN35, version="0.5.12", language_only=True, encoder_urls=("http://a",))
    assert server(QWEN35, version="0.5.13", language_only=True)


def test_items_are_scored_in_one_prefill_without_graphs() -> None:
    found = server(LLAMA, enable_mis=True, attention_backend="flashinfer", chunked_prefill_size=4096)
    assert (found.chunked_prefill_size, found.decode_graphs, found.prefill_graphs) == (-1, (), ())
    with pytest.raises(ConfigError, match="flashinfer"):
        server(LLAMA, enable_mis=True)


@pytest.mark.parametrize(("version", "chunk"), [("0.5.15", 8192), ("0.5.16", -1), ("0.5.23", -1)])
def test_some_inputs_are_prefilled_whole(version: str, chunk: int) -> None:
    assert server(CLIP, version=version).chunked_prefill_size == chunk
    assert server(CLIP, version=version, enable_multimodal=False).chunked_prefill_size == 8192


@pytest.mark.parametrize(
    ("version", "told", "settled"),
    [
        ("0.5.15", {}, ("triton", -1, True)),
        ("0.5.16", {}, ("triton", -1, False)),
        ("0.5.23", {}, ("triton", -1, False)),
        ("0.5.23", {"prefix_lm": False}, ("fa3", 8192, True)),
    ],
)
def test_hrm_texts_prompts_see_all_of_themselves(
    version: str, told: dict[str, bool], settled: tuple[str, int, bool]
) -> None:
    found = server({**checkpoint("HrmTextForCausalLM", "llama"), **told}, version=version)
    assert (found.attention_backend, found.chunked_prefill_size, bool(found.decode_graphs)) == settled


def test_mimo_v2_is_multimodal_where_it_sees_and_hears() -> None:
    mimo = checkpoint("MiMoV2ForCausalLM", "llama")
    both = {**mimo, "vision_config": {}, "audio_config": {}}
    assert server(mimo).prefill_graphs and server({**mimo, "vision_config": {}}).prefill_graphs
    assert server(both).prefill_graphs == ()
    assert server(both, enable_multimodal=False).prefill_graphs


def test_scores_of_items_keep_no_prefixes() -> None:
    found = server(LLAMA, enable_mis=True, attention_backend="flashinfer")
    (kept,) = found.reasons["disable_radix_cache"]
    assert (kept.value, kept.rule) == (True, "--enable-mis")
    assert (found.chunked_prefill_size, found.decode_graphs, found.prefill_graphs) == (-1, (), ())
