"""Drafts that are models of their own, beside SGLang's class: their weights, and their pools."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.own_draft import OwnDraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.units import MIB
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
from tests.oracle.drafts import RECORDED, bytes_of_rank, config_of

META = torch.device("meta")
HELD = json.loads(RECORDED.read_text())
BY_NAME = {draft["name"]: draft for draft in HELD["drafts"]}


def _model(name: str = "Llama-3.1-8B", **changes: Any) -> ModelConfig:
    return Checkpoint({**config_of(HELD, BY_NAME[name]), **changes}).model_config()


@pytest.mark.parametrize(
    ("name", "tp"), [(name, int(tp)) for name in BY_NAME for tp in BY_NAME[name]["bytes"]]
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own_draft(name: str, tp: int) -> None:
    assert _model(name).obstacles == ()
    assert bytes_of_rank(config_of(HELD, BY_NAME[name]), tp) == BY_NAME[name]["bytes"][str(tp)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"num_layers_of_experts": 3}, "num_layers_of_experts is not read here"),
        ({"eagle_config": {"parallel_drafting": True}}, "eagle_config: parallel_drafting is not read here"),
        (
            {"num_hidden_layers": 2},
            "num_hidden_layers is 2: this runtime computes EAGLE3 drafts of one layer",
        ),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ],
)
def test_what_is_not_read_of_a_draft_is_named(changes: dict[str, Any], why: str) -> None:
    assert why in _model(**changes).obstacles[0]


CONFIG = config_of(HELD, BY_NAME["Llama-3.1-8B"])
WHOLE = {**CONFIG, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
LLAMA, GPT_OSS = "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b"
OF_GPT_OSS = {**CONFIG, "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64, "vocab_size": 201088}
STANDALONE = {"speculative_algorithm": "STANDALONE"}
OF_EAGLE, EAGLE = config_of(HELD, BY_NAME["EAGLE of Llama 3 8B"]), {"speculative_algorithm": "EAGLE"}
OF_DEEPSEEK = {**CONFIG, "target_hidden_size": 7168}
IN_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LATENT = {**config_of(HELD, BY_NAME["Kimi K2, with latents"]), "vocab_size": 129280}
DEEPSEEK = {"model_path": "deepseek-ai/DeepSeek-V3", "tp": 8, "attention_backend": "fa3"}


@pytest.fixture
def deployed(tmp_path: Path) -> Callable[..., Deployment]:
    def made(config: dict[str, Any] = CONFIG, **flags: Any) -> Deployment:
        (tmp_path / "config.json").write_text(json.dumps(config))
        asked = {"model_path": LLAMA, "gpu": "h200", "speculative_algorithm": "EAGLE3", **flags}
        given = ServerFlags(speculative_draft_model_path=str(tmp_path), **asked)
        return select_deployments(given)[0]

    return made


@pytest.mark.parametrize(
    ("release", "config", "flags", "layers"),
    [
        ("0.5.13", CONFIG, {}, 0),
        ("0.5.14", CONFIG, {}, 1),
        ("0.5.23", CONFIG, {}, 1),
        ("0.5.23", WHOLE, STANDALONE, 4),
        ("0.5.23", {**WHOLE, "num_nextn_predict_layers": 1}, STANDALONE, 1),
        ("0.5.14", OF_GPT_OSS, {"model_path": GPT_OSS}, 0),
        ("0.5.15", OF_GPT_OSS, {"model_path": GPT_OSS}, 1),
    ],
)
def test_a_pool_leaves_room_for_as_many_layers_as_its_release_counts(
    deployed: Any, release: str, config: dict[str, Any], flags: dict[str, Any], layers: int
) -> None:
    own = deployed(config, sglang_version=release, **flags).own_draft
    assert isinstance(own, OwnDraft) and own.counted_layers == layers


@pytest.mark.parametrize(
    ("config", "layers", "given"),
    [
        (CONFIG, (2, 16, 29), 3 * 4096),
        ({**CONFIG, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29]}}, (2, 30), 2 * 4096),
        ({**CONFIG, "eagle_config": {"use_aux_hidden_state": False}}, (), 4096),
    ],
)
def test_its_target_keeps_the_rows_of_the_layers_that_it_is_told(
    deployed: Any, config: dict[str, Any], layers: tuple[int, ...], given: int
) -> None:
    own = deployed(config).own_draft
    assert (own.captures, own.given_width, own.recurrent_width) == (layers, given, 4096)


@pytest.mark.parametrize(
    ("config", "flags", "why"),
    [
        (WHOLE, {}, "EAGLE3 with a draft of model_type llama"),
        (CONFIG, STANDALONE, "STANDALONE with a draft of model_type llama"),
        ({**CONFIG, "surprise": 1}, {}, "config.json: surprise is not read here"),
        ({**CONFIG, "target_hidden_size": 5120}, {}, "target_hidden_size is 5120, and its target's is 4096"),
        ({**CONFIG, "num_aux_hidden_states": 4}, {}, "it is given 4 states"),
        (
            {**CONFIG, "architectures": ["MistralForCausalLMEagle"]},
            {},
            "MistralForCausalLMEagle is not a draft",
        ),
        (OF_EAGLE, {}, "EAGLE3 with a draft of model_type llama"),
        (CONFIG, EAGLE, "LlamaForCausalLMEagle3 has no layer that drafts"),
        ({**OF_EAGLE, "vocab_size": 32000}, EAGLE, "vocab_size is 32000, and its target's is 128256"),
        ({**OF_EAGLE, "hidden_size": 2048}, EAGLE, "hidden_size is 2048, and its target's is 4096"),
        ({**OF_EAGLE, "hot_vocab_size": 8000}, EAGLE, "hot_vocab_size is not read here"),
        ({**OF_EAGLE, "model_type": "qwen2"}, EAGLE, "LlamaForCausalLMEagle of model_type 'qwen2'"),
        ({**CONFIG, "model_type": "qwen3"}, {}, "of model_type 'qwen3'"),
        (LATENT, {}, "target_hidden_size is 7168, and its target's is 4096"),
        ({**LATENT, "target_hidden_size": 4096}, {}, "beside latents of which all are seen"),
        (LATENT, {**DEEPSEEK, "sglang_version": "0.5.14"}, "with latents of SGLang 0.5.14's is not known"),
        ({**LATENT, "quantization_config": IN_FP8}, DEEPSEEK, "that is quantized is not known"),
        ({**LATENT, "num_aux_hidden_states": 3}, DEEPSEEK, "num_aux_hidden_states is not read here"),
        ({**LATENT, "num_hidden_layers": 2}, DEEPSEEK, "num_hidden_layers is 2: SGLang ends at it"),
        ({**LATENT, "q_lora_rank": None}, DEEPSEEK, "q_lora_rank is null: SGLang ends at it"),
        ({**LATENT, "model_type": "glm_moe_dsa"}, DEEPSEEK, "of model_type 'glm_moe_dsa'"),
        (
            OF_DEEPSEEK,
            {**DEEPSEEK, "attention_backend": "trtllm_mla", "gpu": "b200"},
            "is for latent attention",
        ),
    ],
)
def test_a_draft_that_is_not_known_is_named_with_the_reason(
    deployed: Any, config: dict[str, Any], flags: dict[str, Any], why: str
) -> None:
    told = deployed(config, **flags).not_counted
    assert why in told and told.startswith("not counting") and told.endswith(": not modelled")


def test_a_draft_that_is_known_is_said_to_be_unmeasured(deployed: Any) -> None:
    assert deployed().not_counted.endswith(" is predicted, and was never measured")


def test_what_one_with_latents_holds_beside_them_is_named(deployed: Any) -> None:
    found = deployed(LATENT, **DEEPSEEK)
    own = found.own_draft
    assert isinstance(own, OwnDraft) and own.runtime.prefill_graphs == ()
    assert (own.captures, own.given_width, own.counted_layers) == ((2, 30, 58), 3 * 7168, 1)
    assert "the buffer in which ranks gather what their draft is given" in found.not_counted
    assert "one more layer of the target stands for it" not in found.not_counted
    alone = deployed(LATENT, **{**DEEPSEEK, "dp": 8, "enable_dp_attention": True})
    assert "the buffer in which ranks gather" not in alone.not_counted


def test_a_draft_alone_serves_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    [deployment] = select_deployments(ServerFlags(model_path=str(tmp_path), gpu="h200"))
    with pytest.raises(UsageError, match="is a draft: without the model that it drafts for"):
        starts_of(deployment, "0")


def test_its_positions_are_its_target_s(deployed: Any) -> None:
    """2,048 positions become as many as the context has, twice three steps of four tokens and a margin."""
    own = deployed(
        speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4
    ).own_draft
    assert own.runtime.positions == 131_072 + 384
    for told, rows in ((2048, 131_072 + 384), (262_144, 262_144)):
        longer = deployed({**CONFIG, "max_position_embeddings": told}).own_draft
        draft = OwnDraftModel(
            replace(longer, runtime=own.runtime), VirtualCommunicator(longer.parallel), META
        )
        assert [table.shape[0] for table in draft.decoder.ropes.buffers()] == [rows]


def test_a_shortened_start_keeps_nothing_of_layers_that_it_lacks(deployed: Any) -> None:
    flags = {"cuda_graph_max_bs": 4, "max_running_requests": 4, "chunked_prefill_size": 256}
    flags |= {"context_length": 2048}
    report = predict(starts_of(deployed(**flags), "0")[0].shortened().as_measured())
    assert report.verdict == "fits" and report.phases[-1].name == "ready"


def test_under_dp_attention_it_is_whole_on_every_rank(deployed: Any) -> None:
    config = config_of(HELD, BY_NAME["DeepSeek-V3, layers told"])
    own = deployed(config, **DEEPSEEK, dp=8, enable_dp_attention=True).own_draft
    assert isinstance(own, OwnDraft) and own.parallel == ParallelConfig()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_eagles_is_given_what_the_last_layer_of_its_target_makes(
    deployed: Any, release: str, layers: int
) -> None:
    own = deployed({**OF_EAGLE, "num_hidden_layers": layers}, **EAGLE, sglang_version=release).own_draft
    assert (own.captures, own.given_width, own.recurrent_width) == ((), 4096, 4096)
    assert own.counted_layers == (layers if release > "0.5.13" else 0)


def test_a_start_with_one(deployed: Any) -> None:
    """By hand: its tables are there until the pool is made, which has room for a layer of the target's."""
    steps = dict(zip(("num_steps", "eagle_topk", "num_draft_tokens"), (3, 1, 4), strict=True))
    flags = {"cuda_graph_max_bs": 8, "max_running_requests": 8, "sglang_version": "0.5.17"}
    flags |= {f"speculative_{name}": value for name, value in steps.items()}
    report = predict(starts_of(deployed(**flags), "0")[0])
    phases = {phase.name: phase for phase in report.phases}
    weights = phases["draft weights"]
    turned = (131_072 + 384) * 128 * 4
    held = BY_NAME["Llama-3.1-8B"]["bytes"]["1"] + turned
    assert weights.persistent_bytes - held in range(4 * MIB)
    tokens, each = report.sizes.kv_tokens, 2 * 8 * 128 * 2
    assert tokens is not None and report.sizes.kv_bytes_per_token == 33 * each
    pool, embedding = phases["draft kv pool"], 128256 * 4096 * 2
    held = pool.allocated_bytes - phases["kv pool"].allocated_bytes
    assert held - ((tokens + 1) * each - embedding) in range(2 * MIB)
    plain = {name: value for name, value in flags.items() if "speculative" not in name}
    alone = predict(starts_of(deployed(**plain, speculative_algorithm=None), "0")[0])
    assert alone.sizes.kv_tokens is not None
    assert tokens == pytest.approx(
        (alone.sizes.kv_tokens * 32 * each - weights.persistent_bytes) / 33 / each, 1e-3
    )
