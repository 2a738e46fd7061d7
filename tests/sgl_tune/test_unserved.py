"""Servers that SGLang starts for a model whose class is not written for them: a key, and why no layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.resolve import LONGER_CONTEXT
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints

_CONFIGS = {one.name: one.config for one in checkpoints()}
_FALCON = _CONFIGS["tiiuae/Falcon-H1-0.5B-Instruct"]
_LONGCAT = _CONFIGS["meituan-longcat/LongCat-Flash-Chat"]
_LING_3 = _CONFIGS["inclusionAI/Ling-3.0-flash"]
_M3 = _CONFIGS["MiniMaxAI/MiniMax-M3"]
_GEMMA = _CONFIGS["google/gemma-4-26B-A4B-it"]
_NVFP4 = {
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": ["lm_head", "model.vision_tower*", "model.embed_vision*"],
    }
}
_TRINITY = _CONFIGS["arcee-ai/Trinity-Mini"]
_DEEPSEEK_MOE = _CONFIGS["deepseek-ai/deepseek-moe-16b-base"]
_DBRX = _CONFIGS["databricks/dbrx-instruct"]
_XVERSE_MOE = _CONFIGS["a/xverse-moe-a4.2b-by-its-card"]
_PHI_MOE = _CONFIGS["microsoft/Phi-3.5-MoE-instruct"]
_KIMI, _HY3, _LING = (
    _CONFIGS[name]
    for name in (
        "moonshotai/Kimi-Linear-48B-A3B-Instruct",
        "tencent/Hy3-preview",
        "inclusionAI/Ling-2.5-1T",
    )
)


def _deployment(folder: Path, changes: dict[str, Any], like: Any = _KIMI, **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps({**like, **changes}))
    told = {"arch": "sm90", "sglang_version": "0.5.23", "model_path": str(folder), **flags}
    return resolve_deployment(ServerFlags(**told), environ={})


_FP8 = {"quantization": "fp8"}
_DP = {"tp": 4, "dp": 4, "enable_dp_attention": True}
_NGRAMS = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}


@pytest.mark.parametrize(
    ("served", "not_served", "said"),
    [
        ({"tp": 4}, _DP, "DP attention"),
        ({"tp": 4}, {"tp": 4, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"pp": 2}, {"pp": 2, "sglang_version": "0.5.16"}, "--pp before 0.5.17"),
    ],
)
def test_what_kimi_linears_class_is_not_written_for_has_a_key_alone(
    served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _deployment(tmp_path, {}, **served).shape.model is not None
    refused = _deployment(tmp_path, {}, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"kimi_linear does not go with {said}")


_K3 = {one.name: one.config for one in checkpoints()}


@pytest.mark.parametrize(
    ("weights", "served", "not_served", "said"),
    [
        ("its-text-alone", _DP, {"tp": 8, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ("its-text-alone", {"tp": 8}, {"tp": 8, "sglang_version": "0.5.22"}, "releases before 0.5.23"),
        ("its-text-alone", {"tp": 8, "ep": 8}, {"tp": 8, "quantization": "fp8"}, "quantized weights"),
        ("its-text-alone", {"tp": 8}, {"moe_runner_backend": "flashinfer_cutlass"}, "kernels of FlashInfer"),
        ("with-experts-in-mxfp4", {"moe_runner_backend": "marlin", "tp": 8}, {"tp": 8}, "experts in mxfp4"),
        ("with-experts-in-mxfp4", {"arch": "sm100", "tp": 8}, {"arch": "sm120", "tp": 8}, "experts in mxfp4"),
    ],
)
def test_what_of_kimi_k3_is_not_known(
    weights: str, served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    like = _K3[f"a/kimi-k3-{weights}"]
    assert _deployment(tmp_path, {}, like, **served).shape.model is not None
    refused = _deployment(tmp_path, {}, like, **not_served)
    assert refused.shape.model is None and refused.shape.unknown.startswith(
        f"kimi_k3_text does not go with {said}"
    )


@pytest.mark.parametrize(
    ("served", "not_served", "said"),
    [
        ({"tp": 8}, {"tp": 8, "dp": 8, "enable_dp_attention": True}, "DP attention"),
        ({"tp": 8, "ep": 8}, {"tp": 8, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"tp": 4, "pp": 2, "arch": "sm100"}, {"tp": 8, "speculative_algorithm": "NGRAM"}, "drafts"),
    ],
)
@pytest.mark.parametrize("release", ["0.5.21", "0.5.23"])
@pytest.mark.parametrize("weights", ["from-memory", "in-fp8-blocks"])
def test_what_of_gigachat_is_not_known(
    weights: str, release: str, served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    like = _K3[f"a/gigachat-3.5-432b-{weights}"]
    assert _deployment(tmp_path, {}, like, sglang_version=release, **served).shape.model is not None
    refused = _deployment(tmp_path, {}, like, sglang_version=release, **not_served).shape
    assert refused.model is None and refused.unknown.startswith(f"gigachat3_5 does not go with {said}")


@pytest.mark.parametrize("release", ["0.5.21", "0.5.23"])
@pytest.mark.parametrize(("method", "known"), [("fp8", True), ("modelopt", False)])
def test_gigachats_files_are_known_in_blocks_and_what_servers_quantize(
    method: str, known: bool, release: str, tmp_path: Path
) -> None:
    plain = _K3["a/gigachat-3.5-432b-from-memory"]
    of_modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}
    like = plain if known else {**plain, "quantization_config": of_modelopt}
    served = {"quantization": "fp8"} if known else {}
    found = _deployment(tmp_path, {}, like, sglang_version=release, tp=8, **served).shape
    assert (found.model is not None) == known
    said = "gigachat3_5 does not go with quantized weights of a checkpoint but in fp8 blocks"
    assert found.unknown.startswith("" if known else said)


def test_hunyuan_3_is_split_over_all_ranks(tmp_path: Path) -> None:
    assert _deployment(tmp_path, {}, _HY3, tp=4).shape.model is not None
    refused = _deployment(tmp_path, {}, _HY3, tp=4, moe_a2a_backend="deepep")
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith("hy_v3 does not go with an all-to-all")


@pytest.mark.parametrize(
    ("served", "not_served", "said"),
    [
        ({"tp": 8, "dp": 8, "enable_dp_attention": True}, {"tp": 8, **_DP}, "DP attention of several"),
        ({"tp": 8, "pp": 2}, {"tp": 8, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"tp": 8, "ep": 8}, {"tp": 8, "quantization": "fp8"}, "quantized weights"),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_what_ling_hybrids_class_is_not_written_for_has_a_key_alone(
    release: str, served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _deployment(tmp_path, {}, _LING, sglang_version=release, **served).shape.model is not None
    refused = _deployment(tmp_path, {}, _LING, sglang_version=release, **{**not_served, "tp": 8})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"bailing_hybrid does not go with {said}")


@pytest.mark.parametrize(("release", "known"), [("0.5.22", False), ("0.5.23", True)])
def test_ling_hybrids_experts_by_trtllm_kernels(release: str, known: bool, tmp_path: Path) -> None:
    asked = {"arch": "sm100", "tp": 8, "moe_runner_backend": "flashinfer_trtllm", "sglang_version": release}
    deployment = _deployment(tmp_path, {}, _LING, **asked)
    assert (deployment.shape.model is not None) is known
    assert known or "trtllm kernels before 0.5.23" in deployment.shape.unknown


@pytest.mark.parametrize(
    ("like", "arch", "release", "said"),
    [
        (_LING, "sm90", "0.5.23", None),
        (_LING_3, "sm90", "0.5.23", None),
        (_LING_3, "sm100", "0.5.23", None),
        (_LING_3, "sm120", "0.5.23", None),
        (_LING, "sm120", "0.5.19", None),
        (_LING, "sm120", "0.5.20", "fp8 blocks on Blackwell where DeepGEMM may be"),
        (_LING, "sm100", "0.5.23", "fp8 blocks on Blackwell where DeepGEMM may be"),
    ],
)
def test_which_gpus_ling_hybrids_weights_are_known_on_in_fp8_blocks(
    like: Any, arch: str, release: str, said: str | None, tmp_path: Path
) -> None:
    section = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    found = _deployment(tmp_path, section, like, tp=8, arch=arch, sglang_version=release).shape
    assert (found.model is not None) is (said is None)
    assert said is None or said in found.unknown


def test_quantized_shared_experts_of_ling_3_are_known_behind_the_routed_ones(tmp_path: Path) -> None:
    section = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    two = {"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 1536}
    assert _deployment(tmp_path, two, _LING_3, tp=2).shape.model is not None
    refused = _deployment(tmp_path, {**section, **two}, _LING_3, tp=2)
    assert "quantized shared experts by themselves" in refused.shape.unknown


def test_lightning_attention_has_heads_of_128_values(tmp_path: Path) -> None:
    refused = _deployment(tmp_path, {"head_dim": 64}, _LING, tp=8)
    assert refused.shape.model is None and "heads of other widths" in refused.shape.unknown


@pytest.mark.parametrize(
    ("changes", "served", "not_served", "said"),
    [
        ({}, {"tp": 4}, _DP, "DP attention"),
        ({}, {"tp": 4, "sglang_version": "0.5.21"}, {"tp": 4, "sglang_version": "0.5.20"}, "--tp before"),
        ({}, {"sglang_version": "0.5.20"}, {"tp": 2, "sglang_version": "0.5.12"}, "--tp before 0.5.21"),
        ({"tie_word_embeddings": True}, {"dtype": "float32"}, {}, "a tied embedding but in float32"),
    ],
)
def test_what_falcon_h1s_class_is_not_written_for_has_a_key_alone(
    changes: dict[str, Any], served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _deployment(tmp_path, changes, _FALCON, **served).shape.model is not None
    refused = _deployment(tmp_path, changes, _FALCON, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.plans == said.startswith("--tp before")
    assert refused.shape.unknown.startswith(f"falcon_h1 does not go with {said}")


_IN_BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
_YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 65536}


@pytest.mark.parametrize(
    ("changes", "served", "not_served", "said"),
    [
        ({}, {"tp": 8, "ep": 8}, {"tp": 8, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({}, {}, {"quantization": "fp8"}, "quantized weights but those of a checkpoint in fp8 blocks"),
        (_IN_BLOCKS, {"tp": 8}, {"tp": 8, "arch": "sm100"}, "fp8 blocks but on sm90"),
        (_IN_BLOCKS, {"tp": 8}, {"tp": 8, "speculative_algorithm": "EAGLE"}, "drafts of quantized weights"),
        (
            {},
            {"tp": 8, "ep": 8},
            {"tp": 8, "ep": 8, "server_args": {"enable_eplb": True}},
            "experts that move",
        ),
        (
            {"rope_scaling": _YARN},
            {"sglang_version": "0.5.16"},
            {"sglang_version": "0.5.15"},
            "a stretched rope before 0.5.16",
        ),
    ],
)
def test_what_longcats_class_is_not_written_for_has_a_key_alone(
    changes: dict[str, Any], served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _longcat(tmp_path, changes, **served).shape.model is not None
    refused = _longcat(tmp_path, changes, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"longcat_flash does not go with {said}")


def _longcat(
    folder: Path, changes: dict[str, Any], server_args: dict[str, Any] | None = None, **flags: Any
) -> Deployment:
    deployment = _deployment(folder, changes, _LONGCAT, **flags)
    return deployment.asking(**server_args) if server_args else deployment


def test_longcat_is_told_by_its_architecture_too(tmp_path: Path) -> None:
    for named in ({"model_type": ""}, {"model_type": "longcat_flash_ngram"}):
        model = _deployment(tmp_path, named, _LONGCAT).shape.model
        assert model is not None and model.model_type == "longcat_flash"


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"sglang_version": "0.5.22"}, "releases before 0.5.23"),
        ({"dtype": "float32"}, "--dtype float32"),
        ({"quantization": "fp8"}, "quantized weights"),
    ],
)
def test_what_ling_3s_class_is_not_written_for_has_a_key_alone(
    not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    for served in ({"tp": 8}, {"tp": 8, **_DP}, {"tp": 4, "pp": 2}, {"tp": 8, "moe_a2a_backend": "deepep"}):
        assert _deployment(tmp_path, {}, _LING_3, sglang_version="0.5.23", **served).shape.model is not None
    refused = _deployment(tmp_path, {}, _LING_3, **{"tp": 8, "sglang_version": "0.5.23", **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"bailing_hybrid_v3 does not go with {said}")


@pytest.mark.parametrize(("release", "known"), [("0.5.16", False), ("0.5.17", True)])
def test_values_of_another_width_than_keys(release: str, known: bool, tmp_path: Path) -> None:
    changed = _deployment(tmp_path, {"v_head_dim": 64}, sglang_version=release)
    assert (changed.shape.model is not None) is known
    assert _deployment(tmp_path, {}, sglang_version=release).shape.model is not None


_MX = {"quant_method": "mxfp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("changes", "served", "not_served", "said"),
    [
        ({}, {"moe_a2a_backend": "deepep"}, {"moe_a2a_backend": "mooncake"}, "an all-to-all but deepep"),
        ({}, {"dtype": "bfloat16"}, {"dtype": "float16"}, "another dtype than bfloat16"),
        ({"quantization_config": _MX}, {"arch": "sm100"}, {"dtype": "half"}, "another dtype"),
        ({}, {"dp": 8, "enable_dp_attention": True}, {"quantization": "fp8"}, "weights in another format"),
        ({}, {"pp": 2}, {"quantization": "mxfp8"}, "weights in another format"),
        (
            {},
            {"ep": 8},
            {"speculative_algorithm": "EAGLE", "disable_cuda_graph": True},
            "drafts without graphs",
        ),
    ],
)
@pytest.mark.parametrize("release", ["0.5.17", "0.5.23"])
def test_what_minimax_m3s_class_is_not_written_for_has_a_key_alone(
    release: str,
    changes: dict[str, Any],
    served: dict[str, Any],
    not_served: dict[str, Any],
    said: str,
    tmp_path: Path,
) -> None:
    usual = {"tp": 8, "sglang_version": release}
    assert _deployment(tmp_path, changes, _M3, **{**usual, **served}).shape.model is not None
    refused = _deployment(tmp_path, changes, _M3, **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"minimax_m3_vl_text does not go with {said}")


_ON_CUTLASS = {"moe_runner_backend": "flashinfer_cutlass"}


@pytest.mark.parametrize(
    ("changes", "served", "not_served", "said"),
    [
        ({}, {"tp": 4, "ep": 4}, {"tp": 4, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({}, {"pp": 2, "sglang_version": "0.5.13"}, {"pp": 2, "sglang_version": "0.5.12"}, "--pp before"),
        (
            {},
            {"sglang_version": "0.5.15", **_ON_CUTLASS},
            {"sglang_version": "0.5.14", **_ON_CUTLASS},
            "flashinfer_cutlass before 0.5.15",
        ),
        (
            _NVFP4,
            {"arch": "sm100"},
            {"arch": "sm100", "sglang_version": "0.5.22"},
            "trtllm kernels before 0.5.23",
        ),
        (
            _NVFP4,
            {"arch": "sm100", "sglang_version": "0.5.13", **_ON_CUTLASS},
            {"arch": "sm100", "sglang_version": "0.5.13"},
            "trtllm kernels before 0.5.23",
        ),
    ],
)
def test_what_gemma_4s_class_is_not_written_for_has_a_key_alone(
    changes: dict[str, Any], served: dict[str, Any], not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _deployment(tmp_path, changes, _GEMMA, **served).shape.model is not None
    refused = _deployment(tmp_path, changes, _GEMMA, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"gemma4_text does not go with {said}")


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"ep": 4}, "--ep"),
        ({"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/none"}, "drafts"),
        (_FP8, "quantized weights"),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize("config", [_TRINITY, _DEEPSEEK_MOE, _DBRX, _XVERSE_MOE])
def test_what_classes_that_split_experts_are_not_written_for_has_a_key_alone(
    config: dict[str, Any], release: str, not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    usual = {"tp": 4, "sglang_version": release}
    model = _deployment(tmp_path, {}, config, **usual).shape.model
    assert model is not None
    if config is _DBRX and not_served is _FP8:  # whose experts stay plain
        assert _deployment(tmp_path, {}, config, **usual, **_FP8).shape.model is not None
        return
    if said == "drafts":
        (tmp_path / "draft").mkdir()
        (tmp_path / "draft/config.json").write_text(json.dumps(config))
        not_served = {**not_served, "speculative_draft_model_path": str(tmp_path / "draft")}
    refused = _deployment(tmp_path, {}, config, **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"{model.model_type} does not go with {said}")


@pytest.mark.parametrize(
    ("release", "not_served", "said"),
    [
        ("0.5.23", _DP, "DP attention"),
        ("0.5.12", _DP, "DP attention"),
        ("0.5.23", {"moe_a2a_backend": "deepep"}, "an all-to-all"),
        ("0.5.22", {"moe_runner_backend": "flashinfer_trtllm", "arch": "sm100"}, "trtllm kernels"),
    ],
)
def test_what_phimoes_class_is_not_written_for_has_a_key_alone(
    release: str, not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    usual = {"tp": 4, "sglang_version": release}
    assert _deployment(tmp_path, {}, _PHI_MOE, **usual).shape.model is not None
    refused = _deployment(tmp_path, {}, _PHI_MOE, **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"phimoe does not go with {said}")


@pytest.mark.parametrize(
    ("name", "release", "not_served", "said"),
    [
        ("a/granite-of-shared-experts", "0.5.19", {"sglang_version": "0.5.18"}, "releases before 0.5.19"),
        ("a/granite-of-windows", "0.5.22", {"moe_a2a_backend": "deepep"}, "an all-to-all"),
    ],
)
def test_what_granites_class_of_shared_experts_is_not_written_for_has_a_key_alone(
    name: str, release: str, not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    usual = {"tp": 4, "sglang_version": release}
    assert _deployment(tmp_path, {}, _CONFIGS[name], **usual).shape.model is not None
    refused = _deployment(tmp_path, {}, _CONFIGS[name], **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert f" does not go with {said}" in refused.shape.unknown


@pytest.mark.parametrize(
    "name",
    [
        *("bigcode/starcoder2-7b", "internlm/internlm3-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        *("google/gemma-4-26B-A4B-it", "arcee-ai/Trinity-Mini", "tencent/Hy3-preview"),
        *(
            "a/granite-of-shared-experts",
            "a/granite-of-windows",
            "xai-org/grok-2",
            "deepseek-ai/deepseek-moe-16b-base",
            "databricks/dbrx-instruct",
            "a/xverse-moe-a4.2b-by-its-card",
        ),
        *("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "stabilityai/stablelm-2-1_6b", "allenai/OLMo-7B-0424-hf"),
        *("IQuestLab/IQuest-Coder-V1-40B-Instruct", "swiss-ai/Apertus-8B-Instruct-2509"),
        "LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct",
        *("a/muse-glimmer-30b-as-its-classes-have-it", "microsoft/phi-2", "adept/persimmon-8b-base"),
        "baichuan-inc/Baichuan2-7B-Base",
        *("OrionStarAI/Orion-14B-Base", "xverse/XVERSE-13B", "a/tele-flm-52b-from-memory", "Qwen/Qwen-7B"),
        *(
            "Qwen/Qwen2.5-72B-Instruct",
            *("mistralai/Mixtral-8x7B-Instruct-v0.1", "a/mixtral-8x7b-of-whole-experts"),
            "CohereForAI/c4ai-command-r7b-12-2024",
        ),
    ],
)
def test_classes_that_split_heads_over_all_ranks_end_under_dp_attention(name: str, tmp_path: Path) -> None:
    assert never_starts(_deployment(tmp_path, {}, _CONFIGS[name], tp=4)) is None
    found = never_starts(_deployment(tmp_path, {}, _CONFIGS[name], **_DP))
    assert found is not None and "splits its heads over all 4 ranks" in found


def test_baichuans_of_other_widths_have_no_places_and_a_key_alone(tmp_path: Path) -> None:
    config = _CONFIGS["baichuan-inc/Baichuan2-7B-Base"]
    assert _deployment(tmp_path, {}, config, tp=4).shape.model is not None
    refused = _deployment(tmp_path, {"hidden_size": 5120, "num_attention_heads": 40}, config, tp=4)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith("baichuan does not go with rows of another width than 4096")


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"tp": 4, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"tp": 4, **_NGRAMS}, "drafts"),
    ],
)
def test_what_mixtrals_class_of_whole_experts_is_not_written_for_has_a_key_alone(
    not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    config = _CONFIGS["a/mixtral-8x7b-of-whole-experts"]
    assert _deployment(tmp_path, {}, config, tp=4).shape.model is not None
    refused = _deployment(tmp_path, {}, config, **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"mixtral_quant does not go with {said}")


_CUTLASS = {"tp": 8, "moe_runner_backend": "flashinfer_cutlass"}


@pytest.mark.parametrize("name", ["xai-org/grok-2", "a/grok-1-told-as-a-mixtral"])
@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"tp": 8, "moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"tp": 8, "ep": 8}, "--ep"),
        ({"tp": 8, "moe_runner_backend": "triton_kernel"}, "a MoE backend but triton"),
        ({"tp": 8, "arch": "sm100", "moe_runner_backend": "flashinfer_trtllm"}, "a MoE backend but triton"),
        ({**_CUTLASS, "sglang_version": "0.5.14"}, "flashinfer_cutlass before 0.5.15"),
    ],
)
def test_what_groks_class_is_not_written_for_has_a_key_alone(
    name: str, not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    made = ({"tp": 8, "quantization": method} for method in ("fp8", "w8a8_fp8"))
    for served in ({"tp": 8}, *made, _CUTLASS):
        assert _deployment(tmp_path, {}, _CONFIGS[name], **served).shape.model is not None
    refused = _deployment(tmp_path, {}, _CONFIGS[name], **not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"grok does not go with {said}")


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"quantization": "fp8"}, "quantized weights"),
    ],
)
def test_what_iquest_q1s_class_is_not_written_for_has_a_key_alone(
    not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    usual, config = {"tp": 8, "arch": "sm90"}, _CONFIGS["a/iquest-q1-from-its-class"]
    assert _deployment(tmp_path, {}, config, **usual).shape.model is not None
    refused = _deployment(tmp_path, {}, config, **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"iquest_q1 does not go with {said}")


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ({"moe_a2a_backend": "deepep"}, "an all-to-all"),
        ({"dtype": "float16"}, "another dtype than bfloat16"),
        ({"tp": 16}, "more of attention's ranks than it has KV heads"),
        (_NGRAMS, "drafts"),
    ],
)
def test_what_k2_horizons_class_is_not_written_for_has_a_key_alone(
    not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    usual, config = {"tp": 4}, _CONFIGS["a/k2-horizon-mova-36b-told-its-routers-parts"]
    assert _deployment(tmp_path, {}, config, **usual).shape.model is not None
    refused = _deployment(tmp_path, {}, config, **{**usual, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"k2_horizon does not go with {said}")


@pytest.mark.parametrize(("arch", "ends"), [("sm80", False), ("sm90", False), ("sm100", True)])
def test_iquest_q1_ends_where_fa3_has_no_kernels(arch: str, ends: bool, tmp_path: Path) -> None:
    config = _CONFIGS["a/iquest-q1-from-its-class"]
    found = never_starts(_deployment(tmp_path, {}, config, tp=8, arch=arch))
    assert (found is not None and "attention on fa3 has no kernels" in found) is ends


@pytest.mark.parametrize(("longest", "known"), [(1024, True), (1025, False)])
def test_no_position_is_behind_a_table_of_them(longest: int, known: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_CONFIGS["openai-community/gpt2-medium"]))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm90", context_length=longest)
    shape = resolve_deployment(flags, environ={LONGER_CONTEXT: "1"}).shape
    assert (shape.model is not None) is known and ("table of positions" in (shape.unknown or "")) is not known


_LOOPS = "a/iquest-coder-v1-40b-loop-instruct-from-memory"
_SUPER = "nvidia/Llama-3_3-Nemotron-Super-49B-v1"
_SWASH = "a/granite-swa-2b-of-the-sizes-of-its-class"


@pytest.mark.parametrize(
    ("name", "not_served", "said"),
    [
        *((name, _NGRAMS, "drafts") for name in ("bigcode/starcoder2-7b", "openbmb/MiniCPM-2B-sft-bf16")),
        *((name, _NGRAMS, "drafts") for name in ("OrionStarAI/Orion-14B-Base", "xverse/XVERSE-13B")),
        *(
            (name, _NGRAMS, "drafts")
            for name in ("a/tele-flm-52b-from-memory", "a/nanbeige-4.2-3b-from-memory")
        ),
        *(
            ("a/spark-2.5-of-the-sizes-of-its-class", *row)
            for row in ((_NGRAMS, "drafts"), (_DP, "DP attention"))
        ),
        *(
            (name, *row)
            for name in ("a/minicpm3-4b-from-memory", "bigcode/starcoder")
            for row in ((_NGRAMS, "drafts"), (_DP, "DP attention"))
        ),
        *(
            (name, _NGRAMS, "drafts")
            for name in ("openai-community/gpt2-medium", "facebook/opt-6.7b", "EleutherAI/gpt-j-6b", _LOOPS)
        ),
        *(
            (name, *row)
            for name in ("a/muse-glimmer-30b-as-its-classes-have-it",)
            for row in ((_NGRAMS, "drafts"), (_FP8, "quantized"))
        ),
        *(
            (name, _NGRAMS, "drafts")
            for name in (
                *("stabilityai/stablelm-2-1_6b", "allenai/OLMo-7B-0424-hf"),
                *("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", "microsoft/phi-2"),
                *("Qwen/Qwen-7B", "a/glm-4-9b-chat-from-memory"),
            )
        ),
        *(
            ("swiss-ai/Apertus-8B-Instruct-2509", *row)
            for row in ((_NGRAMS, "drafts"), ({"dtype": "float16"}, "another dtype than bfloat16"))
        ),
        *(
            ("thinkingmachines/Inkling", *row)
            for row in (
                *((_NGRAMS, "drafts"), (_DP, "DP attention"), ({"dtype": "float16"}, "another dtype")),
                ({"moe_runner_backend": "flashinfer_cutlass"}, "a MoE backend but triton"),
            )
        ),
        *((_SUPER, *row) for row in ((_NGRAMS, "drafts"), ({"pp": 2}, "--pp"))),
        (_SWASH, _NGRAMS, "drafts"),
        (_LOOPS, {"attention_backend": "triton"}, "attention but on fa3"),
    ],
)
def test_what_dense_classes_are_not_written_for_has_a_key_alone(
    name: str, not_served: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _deployment(tmp_path, {}, _CONFIGS[name], tp=4).shape.model is not None
    refused = _deployment(tmp_path, {}, _CONFIGS[name], **{"tp": 4, **not_served})
    assert refused.shape.model is None and refused.server.key
    assert f" does not go with {said}" in refused.shape.unknown


@pytest.mark.parametrize(("not_served", "said"), [({"tp": 2}, "several ranks"), (_NGRAMS, "drafts")])
def test_phi_3_small_is_on_one_rank(not_served: dict[str, Any], said: str, tmp_path: Path) -> None:
    phi = _CONFIGS["microsoft/Phi-3-small-8k-instruct"]
    assert _deployment(tmp_path, {}, phi, tp=1).shape.model is not None
    refused = _deployment(tmp_path, {}, phi, **{"tp": 1, **not_served})
    assert refused.shape.model is None and f" does not go with {said}" in refused.shape.unknown
