"""Drafts that are a layer of the target's checkpoint: what a rank holds of them, by SGLang's own classes,
what their servers tune, and which classes have none.

python -m tests.oracle.held_random --drafts
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.plan import make_plan
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import checkpoints

META = torch.device("meta")
PUBLISHED = {one.name: one.config for one in checkpoints()}
_USUAL = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}
SIZES = {
    "MiMo 7B": {
        **_USUAL,
        "architectures": ["MiMoForCausalLM"],
        "model_type": "mimo",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151680,
        "max_position_embeddings": 32768,
        "attention_bias": True,
    },
    "ERNIE 4.5 21B": {
        **_USUAL,
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "vocab_size": 103424,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 27,
        "use_bias": False,
    },
}
R1, LLAMA = "nvidia/DeepSeek-R1-0528-NVFP4", "meta-llama/Llama-3.1-8B-Instruct"
LLAMAS = {
    **_USUAL,
    "architectures": ["LlamaForCausalLMEagle"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@pytest.fixture
def deployed(tmp_path: Path) -> Callable[..., Deployment]:
    def made(config: dict[str, Any], own: dict[str, Any] | None = None, **flags: Any) -> Deployment:
        (tmp_path / "draft").mkdir(exist_ok=True)
        for folder, told in ((tmp_path, config), (tmp_path / "draft", own)):
            (folder / "config.json").write_text(json.dumps(told))
        flags |= {"speculative_draft_model_path": str(tmp_path / "draft")} if own else {}
        asked = {"speculative_algorithm": "EAGLE", "gpu": "b200", **flags}
        return select_deployments(ServerFlags(model_path=str(tmp_path), **asked))[0]

    return made


@pytest.mark.parametrize(
    ("name", "release", "tp", "held"),
    [
        ("MiMo 7B", "0.5.12", 1, 2906705920),
        ("MiMo 7B", "0.5.23", 4, 777038848),
        ("ERNIE 4.5 21B", "0.5.12", 1, 775966720),
        ("ERNIE 4.5 21B", "0.5.23", 4, 213667840),
        # of which a head is nvfp4, too, as its list names another one
        (R1, "0.5.14", 8, 3575458816),
        (R1, "0.5.15", 8, 3408946184),
        (R1, "0.5.23", 8, 3408946184),
        ("nvidia/GLM-4.6-NVFP4", "0.5.14", 8, 1478220416),
        ("nvidia/GLM-4.6-NVFP4", "0.5.23", 8, 1340430984),
        ("nvidia/Kimi-K2-Thinking-NVFP4", "0.5.23", 8, 4877921800),
        ("nvidia/Qwen3.5-35B-A3B-NVFP4", "0.5.23", 8, 482632704),
    ],
)
def test_a_rank_holds_as_many_bytes_as_sglangs_class(
    deployed: Any, name: str, release: str, tp: int, held: int
) -> None:
    """As it is made, before what is read of its file is laid out anew."""
    config = SIZES.get(name) or PUBLISHED[name]
    found = deployed(config, tp=tp, gpu="h200", sglang_version=release)
    with patch.object(Decoder, "_finalize"):
        draft = DraftModel(found.model, found.runtime, VirtualCommunicator(found.parallel, tp - 1), META)
    assert sum(one.nbytes for one in draft.parameters()) == held


def _ops(plan: Any) -> set[str]:
    return {op.op for op in plan.ops}


def test_a_draft_of_an_nvfp4_checkpoint_asks_for_plain_experts(deployed: Any) -> None:
    """deepseek_nextn.py: its layer has no quantization."""
    plan = make_plan(deployed(PUBLISHED[R1], tp=8))
    assert _ops(plan.target) == {"flashinfer::trtllm_fp4_block_scale_moe", "fp4_gemm"}
    assert plan.draft is not None and _ops(plan.draft) == {"flashinfer::trtllm_bf16_moe"}


def test_a_draft_without_experts_asks_for_none(deployed: Any) -> None:
    flags = {"moe_runner_backend": "flashinfer_trtllm", "sglang_version": "0.5.23"}
    plan = make_plan(deployed(SIZES["ERNIE 4.5 21B"], **flags))
    assert _ops(plan.target) == {"flashinfer::trtllm_bf16_moe"}
    assert plan.draft is not None and not plan.draft.ops


def test_a_draft_is_sent_rows_as_it_is_told(deployed: Any) -> None:
    flags = {"moe_a2a_backend": "flashinfer", "dp": 8, "enable_dp_attention": True}
    flags |= {"moe_runner_backend": "flashinfer_cutlass"}
    found = deployed(PUBLISHED["zai-org/GLM-4.6"], tp=8, **flags)
    server = found.asking(speculative_moe_a2a_backend="none").server
    assert server.moe_a2a_backend == "flashinfer" and server.as_draft().moe_a2a_backend == "none"
    told = found.asking(speculative_moe_a2a_backend="none").not_counted
    assert "whatever --speculative-moe-a2a-backend says" in told


def test_a_plain_draft_of_what_a_flag_quantizes(deployed: Any) -> None:
    found = deployed(PUBLISHED["zai-org/GLM-4.6"], tp=8, gpu="h200", quantization="fp8")
    comm = VirtualCommunicator(found.parallel)
    quantized = DraftModel(found.model, found.runtime, comm, META)
    plain = found.asking(speculative_draft_model_quantization="unquant")
    draft = DraftModel(plain.model, plain.runtime, comm, META)
    assert torch.float8_e4m3fn in {one.dtype for one in quantized.parameters()}
    assert {one.dtype for one in draft.parameters()} == {torch.bfloat16, torch.float32}


@pytest.mark.parametrize(
    ("name", "release", "why"),
    [
        (LLAMA, "0.5.23", "LlamaForCausalLM has no layer that drafts, and the whole model is loaded again"),
        ("Qwen/Qwen3-30B-A3B", "0.5.12", "SGLang 0.5.12's Qwen3MoeForCausalLM has no layer that drafts"),
        ("Qwen/Qwen3-30B-A3B", "0.5.13", ""),
    ],
)
def test_a_class_has_a_layer_that_drafts_or_is_said_to_have_none(name: str, release: str, why: str) -> None:
    flags = ServerFlags(model_path=name, gpu="h200", sglang_version=release, speculative_algorithm="EAGLE")
    told = select_deployments(flags)[0].not_counted
    assert why in told and ("the draft" in told) == bool(why)


def test_a_draft_of_a_file_of_its_own_is_not_taken_for_a_layer_of_its_targets(deployed: Any) -> None:
    llama = {**LLAMAS, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    assert "the draft's layer" not in deployed(llama, LLAMAS).not_counted
    mistral = {**LLAMAS, "architectures": ["MistralForCausalLMEagle"]}
    assert "MistralForCausalLMEagle is not a draft" in deployed(llama, mistral).not_counted
    glm = PUBLISHED["zai-org/GLM-4.6"]
    assert "the draft" not in deployed(glm, {**glm, "num_hidden_layers": 4}, tp=8).not_counted
    other = deployed(glm, {**glm, "moe_intermediate_size": 768}, tp=8).not_counted
    assert "its config.json tells of another layer than its target's" in other


def test_a_layer_with_experts_is_not_made_of_one_without(deployed: Any) -> None:
    dense = {**PUBLISHED["zai-org/GLM-4.6"], "num_hidden_layers": 2}
    found = deployed(dense, tp=8)
    draft = DraftModel(found.model, found.runtime, VirtualCommunicator(found.parallel), META)
    assert any(".experts." in name for name, _ in draft.named_parameters())


@pytest.mark.parametrize(
    ("name", "flags", "named", "silent"),
    [
        ("zai-org/GLM-4.6", {"attention_backend": "fa3"}, (), ("holds for its draft", "draft's prefills")),
        (
            "Qwen/Qwen3-30B-A3B",
            {"attention_backend": "triton"},
            ("graphs of its draft's prefills",),
            ("holds for its draft",),
        ),
        (
            "Qwen/Qwen3-30B-A3B",
            {"prefill_attention_backend": "fa3", "decode_attention_backend": "triton"},
            ("what attention triton/fa3 holds for its draft",),
            (),
        ),
        (
            "deepseek-ai/DeepSeek-R1",
            {"attention_backend": "fa3"},
            (),
            ("holds for its draft", "draft's prefills"),
        ),
    ],
)
def test_what_attention_holds_for_a_draft_is_counted_or_named(
    tmp_path: Path, name: str, flags: dict[str, str], named: tuple[str, ...], silent: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    command = ["python", "-m", "sglang.launch_server", "--model-path", str(tmp_path), "--tp", "8"]
    command += ["--speculative-algorithm", "EAGLE"]
    for flag, value in flags.items():
        command += [f"--{flag.replace('_', '-')}", value]
    said = select_deployments(ServerFlags(gpu="h200"), command=command)[0].not_counted
    assert all(one in said for one in named) and not any(one in said for one in silent)


def test_a_draft_s_layer_has_the_tables_of_its_steps(tmp_path: Path) -> None:
    """TritonMultiStepDraftBackend of srt/layers/attention: a place for each token of 48 requests."""
    config = {**PUBLISHED["zai-org/GLM-4.6"], "num_hidden_layers": 2, "first_k_dense_replace": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = {}
    for steps in (1, 3):
        command = ["python", "-m", "sglang.launch_server", "--model-path", str(tmp_path), "--tp", "8"]
        command += ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", str(steps)]
        command += ["--speculative-eagle-topk", "1", "--attention-backend", "triton"]
        deployment = select_deployments(ServerFlags(gpu="h200"), command=command)[0]
        report = predict(starts_of(deployment, "0")[0])
        phases = {one.name: one.allocated_bytes for one in report.phases}
        found[steps] = phases["draft graphs"] - phases["decode graphs"]
    places = 48 * config["max_position_embeddings"] * 8
    assert found[1] > 2 * places and found[3] - found[1] > (3 + 2) * places
