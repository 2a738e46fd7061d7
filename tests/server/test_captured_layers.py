"""Of which models SGLang captures prefills, as its own count of layers has it."""

from __future__ import annotations

import pytest

from runtime.server.captured_layers import captures_prefills
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.unpredicted import knows_starts
from tests.runtime.families import config_json, make_reference

LFM2_ATTENDS = {"layer_types": ["full_attention", "full_attention"]}
MIXERS = {"layers_block_type": ["linear_attention", "full_attention"]}
EXPERTS = {"layers_block_type": ["linear_attention", "moe", "full_attention"]}
GRANITE_ATTENDS = {"layer_types": ["full_attention", "full_attention"]}


@pytest.mark.parametrize(
    ("family", "told", "release", "sm", "captured"),
    [
        ("llama", {}, "0.5.17", 9, True),
        ("qwen3_next", {}, "0.5.23", 9, True),
        ("falcon_h1", {}, "0.5.17", 9, True),  # seen on a GPU, as LFM2's are not
        ("lfm2_moe", {}, "0.5.17", 9, False),
        ("lfm2", {}, "0.5.23", 9, False),
        ("mllama_text_model", {}, "0.5.12", 9, False),
        ("lfm2", LFM2_ATTENDS, "0.5.23", 9, True),
        ("granitemoehybrid", {}, "0.5.20", 9, False),
        ("granitemoehybrid", GRANITE_ATTENDS, "0.5.20", 9, True),
        ("longcat_flash", {}, "0.5.16", 9, False),
        *(
            (name, {}, f"0.5.{one}", 9, False)
            for name in ("exaone", "dbrx", "qwen", "gpt2", "opt", "gpt_bigcode", "gptj")
            for one in (12, 17, 23)
        ),
        ("bailing_hybrid", {}, "0.5.20", 9, False),
        ("nemotron_h", {}, "0.5.18", 9, True),
        ("nemotron_h", MIXERS, "0.5.20", 9, True),
        ("nemotron_h", EXPERTS, "0.5.20", 9, False),
        ("nemotron_h", EXPERTS, "0.5.23", 9, False),
        ("nemotron_h", EXPERTS, "0.5.23", 12, True),
        ("nemotron_h_puzzle", {}, "0.5.18", 9, True),
        ("nemotron_h_puzzle", {}, "0.5.23", 9, False),
        ("nemotron_h", {}, "0.5.23", 12, False),  # an MLP among its layers
        ("smollm3", {}, "0.5.12", 9, False),
        ("seed_oss", {}, "0.5.23", 9, False),
    ],
)
def test_of_whom(family: str, told: dict[str, object], release: str, sm: int, captured: bool) -> None:
    model = model_config(config_json(make_reference(family, **told)))
    runtime = RuntimeConfig(sglang_version=release, sm_major=sm)
    assert captures_prefills(model, runtime, stages=1) == captured


@pytest.mark.parametrize(("release", "captured"), [("0.5.17", False), ("0.5.20", True)])
def test_stages_are_captured_since_layers_are_counted_by_stage(release: str, captured: bool) -> None:
    model = model_config(config_json(make_reference("llama")))
    assert captures_prefills(model, RuntimeConfig(sglang_version=release), stages=2) == captured


@pytest.mark.parametrize(
    ("family", "release", "graphs", "known"),
    [
        *((name, "0.5.21", (1, 2), False) for name in ("gpt2", "gptj", "opt", "phi", "starcoder2")),
        *(("gpt2", release, graphs, True) for release, graphs in (("0.5.21", ()), ("0.5.22", (1, 2)))),
        *((name, "0.5.12", (1, 2), True) for name in ("gpt_bigcode", "llama")),
    ],
)
def test_decodes_are_captured_for_a_pass_back_where_a_class_does_not_say_otherwise(
    family: str, release: str, graphs: tuple[int, ...], known: bool
) -> None:
    model = model_config(config_json(make_reference(family)))
    assert knows_starts(model, RuntimeConfig(sglang_version=release, decode_graphs=graphs)) is known
