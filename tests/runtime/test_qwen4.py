"""Qwen4: what of its files is read, what is named, hashes of n-grams, and chunks of a long prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder, sample_layers
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.layer_config import GatedStreamsConfig
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.models import find_model
from tests.oracle.published import published
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import CPU, check_answers, make_pool, make_runtime

LENGTH = 60
Told = dict[str, Any]
_WHOLE = {"rope_parameters": {"rope_theta": 1e7}, "indexer_head_dim": 256}
PUBLISHED = published()["Qwen/Qwen3.8-Flash-Next"].config


def _file(**text: Any) -> Told:
    """With other members of its text; None leaves one out."""
    told = {**PUBLISHED["text_config"], **text}
    return {**PUBLISHED, "text_config": {name: one for name, one in told.items() if one is not None}}


def test_what_its_file_says_is_read() -> None:
    model = model_config(PUBLISHED)
    assert (model.obstacles, model.uncomputed) == ((), ())
    assert [layer for layer, kind in enumerate(model.attention_kinds) if kind == "full"] == [*range(3, 48, 4)]
    assert model.streams == GatedStreamsConfig(4, 320) and model.norms == "none"
    assert model.ngrams is not None and model.ngrams.layers == (1,)
    sizes = model.ngrams.sizes(1)
    assert (model.ngrams.row, model.ngrams.steps, len(sizes)) == (160, 9, 16)
    assert (sizes[0], sizes[-1], model.ngrams.rows(1)) == (20000003, 20000171, 320001536)
    assert 1 not in sample_layers(model)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"partial_rotary_factor": None, **_WHOLE}, "partial_rotary_factor is missing"),
        ({"layer_types": None, "full_attention_interval": None}, "layer_types and full_attention_interval"),
        ({"layer_types": ["linear_attention"] * 48}, "no layer has attention"),
        ({"layer_types": ["indexed_attention"] * 48}, "no layer has a state"),
        ({"indexer_budget": None}, "indexer_budget is missing"),
        ({"indexer_kv_heads": 2}, "indexer_kv_heads is 2"),
        ({"output_gate_type": "tanh"}, "output_gate_type is 'tanh'"),
        ({"eos_token_id": [1, 2]}, "eos_token_id is [1, 2]"),
        ({"eos_token_id": None}, "eos_token_id is None"),
        ({"ple_layer_ids": [4]}, "ple_layer_ids has layers with attention"),
    ],
)
def test_what_is_not_computed_is_named(text: Told, said: str) -> None:
    assert [why for why in model_config(_file(**text)).obstacles if said in why]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"hc_count": 1}, "hc_count is 1"),
        ({"ple_layer_ids": [0]}, r"ple_layer_ids is \[0\]"),
        ({"ple_layer_ids": [49]}, r"ple_layer_ids is \[49\]"),
        ({"ple_embed_dim": 100}, "ple_embed_dim 100"),
        ({"ngram_size": 1}, "ngram_size is 1"),
        ({"indexer_budget": 2046}, "indexer_budget 2046"),
        ({"indexer_head_dim": 32}, "indexer_head_dim is 32: 64 values are turned"),
    ],
)
def test_what_no_model_can_have_is_refused(text: Told, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_file(**text))


@pytest.mark.parametrize("changes", [{}, {"ple_layer_ids": [1], "ngram_size": 4, "ple_embed_dim": 48}])
def test_chunks_and_single_tokens_are_as_the_whole_prompt(changes: Told, tmp_path: Path) -> None:
    """Some tokens end what n-grams look back to."""
    reference = make_reference("qwen4_exp", **changes)
    comm = VirtualCommunicator(ParallelConfig())
    model = find_model(str(save(reference, tmp_path)), {}).checkpoint.model_config()
    decoder = Decoder(model, make_runtime(), comm, CPU, range(model.num_layers))
    decoder.load_hf(tmp_path)
    kv = make_pool(model, comm, range(model.num_layers), torch.float32, CPU)
    long, short = prompts(LENGTH, 33)
    long[15], long[17], long[40], short[16] = (7,) * 4
    want = [reference_logits(reference, text) for text in (long, short)]
    requests = kv.requests.allocate(2)
    ends = [(17, 3), (18, 16), (47, 17), (59, 32)]
    for start, end in zip([(0, 0), *ends], ends, strict=False):
        parts = [text[a:b] for text, a, b in zip((long, short), start, end, strict=True)]
        check_answers(decoder, kv, make_extend_batch(parts, requests, kv, start), want, end)
    last = make_decode_batch([long[-1], short[-1]], requests, kv, ends[-1])
    check_answers(decoder, kv, last, want, (LENGTH, 33))
