"""Servers that end at pipeline stages, and of what release they no longer do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from tests.memory.checkpoints import checkpoints
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json
from tests.sgl_tune.ends import CUTLASS, PUBLISHED, PUBLISHED_TRINITY, TRTLLM, why_it_ends


@pytest.mark.parametrize(
    ("changes", "flags", "why"),
    [
        ({}, {"tp": 8}, None),
        ({}, {"tp": 4, "pp": 2}, "no pipeline stages"),
        ({"num_experts": 4, "num_experts_per_tok": 2}, {"tp": 8}, "4 experts are fewer than 8 ranks"),
        ({"num_experts": 4, "num_experts_per_tok": 2}, {"tp": 4}, None),
        ({"num_experts": 4, "num_experts_per_tok": 2, "num_dense_layers": 32}, {"tp": 8}, None),
        ({"rope_parameters": None}, {"tp": 1}, "rope_parameters is null"),
    ],
)
def test_afmoe_ends_at_stages_and_at_ranks_without_an_expert(
    changes: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED_TRINITY) | changes))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("flags", "why"), [({"tp": 8}, None), ({"tp": 4, "pp": 2}, "no pipeline stages")])
def test_some_end_at_stages(flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["microsoft/Phi-3.5-MoE-instruct"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


_OF_ONE_STAGE = (
    *("google/gemma-3-1b-it", "LiquidAI/LFM2-1.2B", "OpenGVLab/InternVL3-8B", "tencent/Hy3-preview"),
    *("CohereForAI/c4ai-command-r7b-12-2024", "tiiuae/Falcon-H1-0.5B-Instruct", "arcee-ai/Trinity-Mini"),
    *("bigcode/starcoder2-7b", "xai-org/grok-2", "stabilityai/stablelm-2-1_6b", "allenai/OLMo-7B-0424-hf"),
    "LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct",
    *("deepseek-ai/deepseek-moe-16b-base", "openbmb/MiniCPM-2B-sft-bf16"),
    *("a/minicpm3-4b-from-memory", "a/glm-4-9b-chat-from-memory", "openai-community/gpt2-medium"),
    *("bigcode/starcoder", "EleutherAI/gpt-j-6b", "a/nanbeige-4.2-3b-from-memory"),
    *("a/llama-3.2-11b-vision-from-memory", "a/iquest-coder-v1-40b-loop-instruct-from-memory"),
    *("databricks/dbrx-instruct", "a/xverse-moe-a4.2b-by-its-card"),
    *("a/mixtral-8x7b-of-whole-experts", "adept/persimmon-8b-base"),
    "baichuan-inc/Baichuan2-7B-Base",
    *("a/muse-glimmer-30b-as-its-classes-have-it", "a/muse-spark-816b-from-its-classes", "microsoft/phi-2"),
    *("microsoft/Phi-3-small-8k-instruct", "a/janus-pro-7b-from-memory"),
    *("OrionStarAI/Orion-14B-Base", "xverse/XVERSE-13B", "Qwen/Qwen-7B"),
    *("a/unlimited-ocr-of-deepseek-ocrs-sizes", "a/granite-swa-2b-of-the-sizes-of-its-class"),
    *(
        "Qwen/Qwen2-Audio-7B-Instruct",
        "a/glm-asr-nano-from-its-classes",
        "a/voxtral-mini-3b-from-its-classes",
        "a/points-reader-around-qwen2.5-3b",
    ),
)


@pytest.mark.parametrize("name", _OF_ONE_STAGE)
def test_what_has_no_stages_ends_at_a_second(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[name]))
    assert why_it_ends(model_path=str(tmp_path), arch="sm90") is None
    assert "has no pipeline stages" in str(why_it_ends(model_path=str(tmp_path), arch="sm90", pp=2))


@pytest.mark.parametrize(("method", "ends"), [("modelopt", True), ("fp8", False)])
def test_a_mixtral_of_whole_experts_has_no_stages(method: str, ends: bool, tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["a/mixtral-8x7b-of-whole-experts"]
    section = {
        "quantization_config": {"quant_method": method, "quant_algo": "FP8", "activation_scheme": "dynamic"}
    }
    file = {**told, **section, "architectures": ["MixtralForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(file))
    found = why_it_ends(model_path=str(tmp_path), arch="sm90", tp=2, pp=2)
    assert found == ("SGLang's QuantMixtralForCausalLM has no pipeline stages: --pp-size 1" if ends else None)


_MISTRAL = {
    **{"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072},
    **{"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 1e9},
}


def test_mistral_3_has_stages_since_0_5_23(tmp_path: Path) -> None:
    name = "Mistral3ForConditionalGeneration"
    told = {"model_type": "mistral3", "architectures": [name], "dtype": "bfloat16"}
    parts = {"text_config": _MISTRAL, "vision_config": {"model_type": "pixtral"}}
    (tmp_path / "config.json").write_text(json.dumps({**told, **parts}))
    flags: dict[str, Any] = {"model_path": str(tmp_path), "arch": "sm90", "pp": 2}
    assert why_it_ends(**flags) is None
    before = why_it_ends(**flags, sglang_version="0.5.22", flashinfer_version=None)
    assert before is not None and f"{name} has no pipeline stages" in before


_GEMMA, _E2B, _E4B = (
    json.loads(PUBLISHED.read_text())[f"google/gemma-4-{size}-it"] for size in ("26B-A4B", "E2B", "E4B")
)
_WITHOUT_WINDOWS = {
    **_GEMMA,
    "text_config": {**_GEMMA["text_config"], "layer_types": ["full_attention"] * 30},
}
_TEXT_ALONE = {**_GEMMA["text_config"], "architectures": ["Gemma4ForCausalLM"]}
_APART = {**_GEMMA, "text_config": {**_GEMMA["text_config"], "per_layer_config": {"05": {"head_dim": 256}}}}


@pytest.mark.parametrize(
    ("told", "flags", "why"),
    [
        (_GEMMA, {}, None),
        (_GEMMA, CUTLASS, None),
        (_GEMMA, TRTLLM, "no kernels for experts by gelu in bfloat16"),
        (_GEMMA, {**TRTLLM, "quantization": "modelopt_fp4"}, None),
        (_GEMMA, {"moe_runner_backend": "flashinfer_cutedsl", "quantization": "modelopt_fp4"}, "by gelu in"),
        (_GEMMA, {"moe_runner_backend": "deep_gemm", "quantization": "fp8"}, "deep_gemm has no kernels for"),
        (_TEXT_ALONE, {}, "its text alone: SGLang reads heads by kind of layer of a whole Gemma 4"),
        ({**_TEXT_ALONE, "global_head_dim": 256, "num_global_key_value_heads": 8}, {}, None),
        (_APART, {}, None),
        (_APART, {"sglang_version": "0.5.21", "flashinfer_version": None}, "SGLang reads since 0.5.22"),
        (_GEMMA, {"pp": 2}, None),
        (_GEMMA, {"pp": 30}, "stage 5 has no layer behind a window"),
        (_WITHOUT_WINDOWS, {}, "it has no layer behind a window, and SGLang's two pools ask for one"),
        (_E4B, {}, None),
        (_E4B, {"pp": 2}, "graphs pass to no other stage: --disable-cuda-graph"),
        (_E4B, {"pp": 2, "disable_cuda_graph": True}, None),
        (_E4B, {"pp": 3, "disable_cuda_graph": True}, "layer 28 reads the keys of layer 22, of another"),
        (_E2B, {"pp": 2, "disable_cuda_graph": True}, "layer 17 reads the keys of layer 13, of another"),
    ],
)
def test_which_servers_of_gemma_4_end(
    told: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("flags", "why"),
    [({"tp": 8}, None), ({"tp": 16}, "fewer than 16 ranks"), ({"tp": 4, "pp": 2}, "no pipeline stages")],
)
def test_olmo_3_ends_at_stages_and_where_ranks_share_a_kv_head(
    flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["allenai/Olmo-3-1025-7B"]
    (tmp_path / "config.json").write_text(json.dumps({**told, "num_key_value_heads": 8}))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("listed", "own"), [(["Olmo3ForCausalLM"], True), (None, True), (["Other"], False)])
def test_olmo_3_is_served_by_the_class_and_the_rules_of_olmo_2(listed: list[str] | None, own: bool) -> None:
    hf = {"model_type": "olmo3", **({} if listed is None else {"architectures": listed})}
    assert (Checkpoint(hf, {}).architecture == "Olmo2ForCausalLM") is own


_BEAM = "a/beam-501b-from-its-class"
_SLIDES, _SEES = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("name", "kinds", "flags", "why"),
    [
        ("a/unlimited-ocr-of-deepseek-ocrs-sizes", None, {"arch": "sm90"}, None),
        (
            "a/unlimited-ocr-of-deepseek-ocrs-sizes",
            None,
            {"arch": "sm90", "page_size": 64},
            "it has no layer but",
        ),
        (
            "a/unlimited-ocr-of-deepseek-ocrs-sizes",
            None,
            {"arch": "sm100"},
            "it has no layer but behind windows",
        ),
        (_BEAM, [_SLIDES] * 8, {"arch": "sm90"}, "it has no layer but behind windows"),
        (_BEAM, [_SLIDES] * 8, {"arch": "sm100"}, "it has no layer but behind windows"),
        (_BEAM, [_SEES] * 8, {"arch": "sm100"}, None),
        (_BEAM, [_SLIDES] * 4 + [_SLIDES, _SEES] * 2, {"arch": "sm100", "pp": 2}, "stage 0 has no layer but"),
        (_BEAM, [_SLIDES, _SEES] * 4, {"arch": "sm100", "pp": 2}, None),
        (
            _BEAM,
            [_SEES] * 4 + [_SLIDES] * 4,
            {"arch": "sm90", "pp": 2},
            "stage 0 has no layer behind a window",
        ),
    ],
)
def test_what_is_kept_behind_windows_alone_has_pages_of_one_token(
    name: str, kinds: list[str] | None, flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())[name]
    if kinds is not None:
        told |= {"layer_types": kinds, "mlp_layer_types": ["sparse"] * 8, "num_hidden_layers": 8}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


# A tied head of several stages: SGLang's LlamaForCausalLM asks the last for an embedding that the first has.
@pytest.mark.parametrize(
    ("family", "release", "why"),
    [
        ("llama", "0.5.23", "SGLang's last stage has none"),
        ("llama", "0.5.12", "SGLang's last stage has none"),
        ("exaone4", "0.5.22", "SGLang's last stage has none"),
        ("exaone4", "0.5.23", None),
        ("qwen2", "0.5.23", None),
    ],
)
def test_a_head_is_tied_to_no_other_stage(family: str, release: str, why: str | None, tmp_path: Path) -> None:
    told = served_json(make_reference(family, num_hidden_layers=4))
    for tied, stages, ends in ((True, 2, why), (True, 1, None), (False, 2, None)):
        told = {**told, "tie_word_embeddings": tied, "dtype": "bfloat16"}
        (tmp_path / "config.json").write_text(json.dumps(told))
        found = why_it_ends(model_path=str(tmp_path), pp=stages, sglang_version=release, arch="sm90")
        assert found is None if ends is None else found is not None and ends in found


def test_llama_4s_text_alone_has_all_layers_on_each_stage(tmp_path: Path) -> None:
    told = next(one.config for one in checkpoints() if "Llama-4-Scout" in one.name)["text_config"]
    told = {**told, "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text"}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), pp=2, tp=2)
    assert found is not None and "no pipeline stages" in found
