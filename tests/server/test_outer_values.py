"""The last value that a file or a flag may give, and the first that it may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.known import model_config
from runtime.server.deepep import MOST_DISPATCHED, configs_of, low_latency_bytes
from runtime.server.encoders.section import Section
from runtime.server.encoders.step import _ratio
from runtime.server.errors import ConfigError
from runtime.server.formats.fields import block_of, whole
from tests.server.asking import server

_LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}


def _turned(share: float) -> Any:
    return model_config({**_LLAMA, "vocab_size": 64, "partial_rotary_factor": share})


def _stretched(factor: float) -> Any:
    return Checkpoint({"rope_scaling": {"type": "linear", "factor": factor}}).context_length


def _deepep(size: int) -> Any:
    each = {"num_sms": size}
    return configs_of(json.dumps({"normal_dispatch": each, "normal_combine": each}))


@pytest.mark.parametrize(
    ("read", "least", "most", "below", "above"),
    [
        (lambda value: _ratio(Section({"vision_config": {"mlp_ratio": value}})), 0.01, 999.9, 0, 1000),
        (lambda value: block_of({"block": [value, value]}, "block"), 1, 1 << 20, 0, (1 << 20) + 1),
        (lambda value: whole({"bits": value}, "bits", 2, most=16), 2, 16, 1, 17),
        (_turned, 0.25, 1, 0, 1.25),
        (_stretched, 0.01, 1024, 0, 1e30),
        (_deepep, 1, (1 << 20) - 1, 0, 1 << 20),
        (lambda value: low_latency_bytes(value, 256, 8), 1, MOST_DISPATCHED, 0, MOST_DISPATCHED + 1),
        (lambda value: server("qwen3", swa_full_tokens_ratio=value), 0.01, 1, 0, 1.01),
        (lambda value: server("qwen3", mem_fraction_static=value), 0.01, 0.99, 0, 1),
    ],
)
def test_the_last_that_may_be_and_the_first_that_may_not(
    read: Callable[[Any], Any], least: Any, most: Any, below: Any, above: Any
) -> None:
    for value in (least, most):
        assert read(value) is not None
    for value in (below, above):
        with pytest.raises(ConfigError):
            read(value)
