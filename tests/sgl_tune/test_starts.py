"""Servers that SGLang begins to load and that end there: the reason, by release, GPU and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.call_shapes import routing_of
from sgl_tune.keys.dense_shapes import linear_sizes
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import asks_nothing, expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from sgl_tune.keys.verdict import verdict_of
from tests.memory.checkpoints import checkpoints
from tests.memory.quantized import config_of
from tests.oracle.published import published

PUBLISHED = Path(__file__).parents[1] / "memory/data/published_families.json"
PUBLISHED_TRINITY = json.dumps(json.loads(PUBLISHED.read_text())["arcee-ai/Trinity-Mini"])
CUTLASS, TRTLLM = {"moe_runner_backend": "flashinfer_cutlass"}, {"moe_runner_backend": "flashinfer_trtllm"}
MXFP4 = {"moe_runner_backend": "flashinfer_mxfp4"}
GPT_OSS = {"model_path": "gpt-oss-20b", **MXFP4, "flashinfer_version": None}
QWEN, DEEPSEEK = {"model_path": "Qwen3-30B-A3B"}, {"model_path": "DeepSeek-V3", "tp": 8}


def _ends(**flags: Any) -> str | None:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm100"}
    return never_starts(resolve_deployment(ServerFlags(**{**target, **flags}), environ={}))


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({**QWEN, **TRTLLM, "arch": "sm90"}, "FlashInfer has no flashinfer_trtllm kernels for sm90"),
        ({**QWEN, **TRTLLM}, None),
        ({**QWEN, "quantization": "mxfp8", "arch": "sm90", **CUTLASS}, "quantization mxfp8 needs sm100"),
        ({**QWEN, **CUTLASS, "arch": "sm90", "quantization": "modelopt_fp4"}, "for experts in modelopt_fp4"),
        ({**QWEN, **CUTLASS, "quantization": "modelopt_fp4"}, None),
        ({**QWEN, **TRTLLM, "tp": 2, "moe_a2a_backend": "deepep"}, "behind all-to-all deepep"),
        ({**QWEN, **TRTLLM, "quantization": "fp8"}, "for experts in fp8 without blocks"),
        ({**DEEPSEEK, **TRTLLM}, None),
        ({**DEEPSEEK, **CUTLASS, "arch": "sm90", "sglang_version": "0.5.19"}, "for experts in fp8"),
        ({**DEEPSEEK, **CUTLASS, "arch": "sm90", "sglang_version": "0.5.20"}, None),
        ({"model_path": "gpt-oss-20b", **CUTLASS}, "for experts in mxfp4"),
        ({**QWEN, "arch": "sm90"}, None),
        ({**GPT_OSS, "sglang_version": "0.5.16", "arch": "sm120"}, "for experts in mxfp4"),
        ({**GPT_OSS, "sglang_version": "0.5.17", "arch": "sm120"}, None),
        ({**GPT_OSS, "sglang_version": "0.5.12", "arch": "sm90"}, None),
        ({**DEEPSEEK, **MXFP4}, "for experts in fp8"),
        ({**DEEPSEEK, "moe_runner_backend": "flashinfer_megamoe"}, "behind all-to-all none"),
    ],
)
def test_why_a_server_ends_while_it_loads(flags: dict[str, Any], why: str | None) -> None:
    found = _ends(**flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "hidden_act is missing"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"hidden_act": "gelu_pytorch_tanh"}, None),
    ],
)
def test_gemma_2_is_asked_for_both_of_its_activations(
    told: dict[str, str], why: str | None, tmp_path: Path
) -> None:
    hf: dict[str, Any] = {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "torch_dtype": "bfloat16",
    }
    hf |= {"num_hidden_layers": 42, "hidden_size": 3584, "intermediate_size": 14336, "head_dim": 256}
    hf |= {"num_attention_heads": 16, "num_key_value_heads": 8, "query_pre_attn_scalar": 256}
    hf |= {"vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096}
    (tmp_path / "config.json").write_text(json.dumps({**hf, **told}))
    found = _ends(model_path=str(tmp_path), arch="sm90")
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize(
    ("model", "flags", "ends"),
    [
        ("CohereLabs/North-Mini-Code-1.0", {"attention_backend": "triton"}, True),  # seen on a GPU, in 0.5.17
        ("CohereLabs/North-Mini-Code-1.0", {"attention_backend": "fa3"}, False),
        ("CohereForAI/c4ai-command-r7b-12-2024", {"attention_backend": "triton"}, True),
        ("arcee-ai/Trinity-Mini", {"attention_backend": "triton"}, False),
    ],
)
def test_triton_is_told_of_windows(model: str, flags: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[model]))
    found = _ends(model_path=str(tmp_path), arch="sm90", sglang_version="0.5.17", **flags)
    assert (found is not None and "tells the triton attention backend of no window" in found) == ends, found


@pytest.mark.parametrize(
    ("model", "flags", "ends"),
    [
        ("ibm-granite/granite-4.0-h-small", {}, True),  # seen on a GPU
        ("ibm-granite/granite-4.0-h-small", {"attention_backend": "flashinfer"}, False),
        ("ibm-granite/granite-4.0-h-small", {"sglang_version": "0.5.18"}, False),
        ("ibm-granite/granite-4.0-h-small", {"sglang_version": "0.5.12"}, True),
        ("tiiuae/Falcon-H1-0.5B-Instruct", {}, False),  # its first layer attends: seen on a GPU
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {}, False),  # seen on a GPU
    ],
)
def test_triton_asks_the_first_layer(model: str, flags: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[model]))
    asked = {"attention_backend": "triton", "sglang_version": "0.5.17", **flags}
    found = _ends(model_path=str(tmp_path), arch="sm90", **asked)
    assert (found is not None and "asks a stage for keys of the first layer" in found) == ends, found


@pytest.mark.parametrize(
    ("tp", "method", "ends"), [(16, "modelopt_fp8", True), (8, "modelopt_fp8", False), (16, "fp8", False)]
)
def test_experts_that_run_one_by_one_are_whole(tp: int, method: str, ends: bool) -> None:
    found = _ends(model_path="Mixtral-8x7B", tp=tp, nnodes=2, quantization=method, arch="sm90")
    assert (found is not None and "is whole on one rank" in found) == ends, found


@pytest.mark.parametrize(("load_format", "ends"), [("dummy", True), ("auto", False)])
def test_kimi_vl_is_not_made_of_random_weights(load_format: str, ends: bool, tmp_path: Path) -> None:
    """Seen on a GPU: its decode graphs met an attention that was never finished."""
    told = json.loads(PUBLISHED.read_text())["moonshotai/Kimi-VL-A3B-Instruct"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    flags = ServerFlags(sglang_version="0.5.17", flashinfer_version="0.7.2", arch="sm90")
    command = f"python -m sglang.launch_server --model-path {tmp_path} --load-format {load_format}"
    found = never_starts(select_deployments(flags, command=command.split())[0])
    assert (found is not None and "--load-format dummy" in found) == ends, found


MHA = {"attention_backend": "trtllm_mha", "page_size": 128}


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ({"tp": 4, **MHA}, False),  # eight heads for each of keys
        ({"tp": 16, "nnodes": 2, **MHA}, False),
        ({"tp": 32, "nnodes": 4, **MHA}, True),  # one for one
        ({"tp": 32, "nnodes": 4, **MHA, "page_size": 64}, False),
        ({"tp": 32, "nnodes": 4, **MHA, "sglang_version": "0.5.16"}, False),  # pages of 64 there
        ({"tp": 32, "nnodes": 4, **MHA, "arch": "sm90"}, False),
        ({"tp": 4, **MHA, "attention_backend": "fa4"}, False),
    ],
)
def test_large_pages_are_for_grouped_heads(flags: dict[str, Any], ends: bool) -> None:
    found = _ends(**QWEN, **flags)
    assert (found is not None and "pages of 128 tokens" in found) == ends, found


@pytest.mark.parametrize(("flags", "ends"), [({"tp": 8}, False), ({"tp": 16, "nnodes": 2}, True)])
def test_lightning_attention_is_normed_in_groups_that_ranks_share(
    flags: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["inclusionAI/Ling-2.5-1T"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = _ends(model_path=str(tmp_path), **flags)
    assert found == ("8 groups of norms cannot be divided among 16 ranks" if ends else None)


@pytest.mark.parametrize(
    ("arch", "asked", "ends"),
    [
        ("sm100", {}, True),
        ("sm100", {"disable_radix_cache": True}, False),
        ("sm100", {"attention_backend": "flashinfer"}, False),
        ("sm100", {"attention_backend": "flashinfer", "page_size": 16}, True),
        ("sm90", {}, False),
        ("sm90", {"page_size": 16}, True),
    ],
)
@pytest.mark.parametrize(
    ("model_type", "release"),
    [
        *(("lfm2_vl", release) for release in ("0.5.12", "0.5.20", "0.5.23")),
        *(("NemotronH_Nano_VL_V2", "0.5.13"), ("NemotronH_Nano_Omni_Reasoning_V3", "0.5.23")),
    ],
)
def test_a_model_with_states_that_no_rule_knows_keeps_prefixes_in_pages_of_one_token(
    model_type: str, release: str, arch: str, asked: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    """States that no extra buffer keeps."""
    told = next(one for one in json.loads(PUBLISHED.read_text()).values() if one["model_type"] == model_type)
    (tmp_path / "config.json").write_text(json.dumps(told))
    target = ServerFlags(model_path=str(tmp_path), sglang_version=release, arch=arch)
    found = never_starts(resolve_deployment(target, environ={}).asking(**asked))
    assert found is not None and "pages of one token" in found if ends else found is None


@pytest.mark.parametrize(
    ("changes", "flags", "why"),
    [
        ({}, TRTLLM, "takes no shared expert beside its own: --disable-shared-experts-fusion"),
        ({"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 1536}, TRTLLM, None),
        ({}, CUTLASS, None),
        ({}, {**CUTLASS, "arch": "sm90"}, None),
    ],
)
def test_ling_3s_shared_expert_runs_behind_the_routed_ones(
    changes: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["inclusionAI/Ling-3.0-flash"] | changes
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = _ends(model_path=str(tmp_path), tp=8, **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("changes", "flags", "why"),
    [
        ({"head_dim": None}, {"sglang_version": "0.5.13"}, "head_dim is missing"),
        ({"head_dim": None}, {"sglang_version": "0.5.14"}, None),
        ({}, {"sglang_version": "0.5.13"}, None),
        ({"mamba_conv_bias": False}, {"tp": 2}, "convolutions have no bias"),
        ({"mamba_conv_bias": False}, {}, None),
        ({"mamba_conv_bias": False, "mamba_n_groups": 2}, {"tp": 2}, None),
        ({}, {"tp": 2}, None),
    ],
)
def test_falcon_h1_ends_where_its_class_reads_what_is_not_there(
    changes: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["tiiuae/Falcon-H1-0.5B-Instruct"] | changes
    told = {name: value for name, value in told.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = _ends(model_path=str(tmp_path), **{"flashinfer_version": None, **flags})
    assert found is None if why is None else found is not None and why in found


_BASE, _YARN = {"rope_theta": 1e7}, {"rope_type": "yarn", "factor": 1.0}
_LONG = {**_YARN, "original_max_position_embeddings": 131072}
_EAGLE = {"speculative_algorithm": "EAGLE"}


@pytest.mark.parametrize(
    ("scaling", "release", "flags", "ends"),
    [
        (None, "0.5.15", {}, True),
        (None, "0.5.16", {}, False),
        (None, "0.5.16", _EAGLE, True),
        (None, "0.5.17", {}, True),
        (_LONG, "0.5.15", {}, True),
        (_LONG, "0.5.16", {}, False),
        (_LONG, "0.5.16", _EAGLE, True),
        (_LONG, "0.5.23", {}, False),
        ({**_LONG, **_BASE}, "0.5.12", {}, False),
        ({**_LONG, **_BASE}, "0.5.16", _EAGLE, False),
        ({**_LONG, **_BASE}, "0.5.23", _EAGLE, False),
    ],
)
def test_longcat_ends_where_its_rope_has_not_what_its_class_reads(
    scaling: dict[str, Any] | None, release: str, flags: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["meituan-longcat/LongCat-Flash-Chat"]
    (tmp_path / "config.json").write_text(json.dumps({**told, "rope_scaling": scaling}))
    asked = {"arch": "sm90", "flashinfer_version": None, "sglang_version": release, "tp": 8, **flags}
    found = _ends(model_path=str(tmp_path), **asked)
    assert found is not None and "rope_scaling has not what" in found if ends else found is None


def test_longcat_has_an_expert_a_rank(tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["a/longcat-flash-chat-stretched-by-one"]
    (tmp_path / "config.json").write_text(json.dumps({**told, "n_routed_experts": 4}))
    assert _ends(model_path=str(tmp_path), tp=8) == "4 experts are fewer than 8 ranks"
    assert _ends(model_path=str(tmp_path), tp=4) is None


def test_minimax_m3s_text_alone_ends_where_its_class_drops_what_is_read(tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["MiniMaxAI/MiniMax-M3"]
    alone = {**told["text_config"], "model_type": "minimax_m3_vl_text", "torch_dtype": "bfloat16"}
    for file, ends in ((told, False), (alone, True)):
        (tmp_path / "config.json").write_text(json.dumps(file))
        found = _ends(model_path=str(tmp_path), tp=8)
        assert found is not None and "drops the sparse_attention_config" in found if ends else found is None


@pytest.mark.parametrize(
    ("arch", "flags", "shared"),
    [
        ("sm100", {"moe_runner_backend": "deep_gemm"}, False),
        ("sm100", {"moe_runner_backend": "flashinfer_trtllm_routed"}, True),
        ("sm100", {"ep": 8}, True),
        ("sm100", {"moe_a2a_backend": "deepep"}, True),
    ],
)
def test_minimax_m3s_shared_expert_is_no_mlp_where_it_runs_as_a_routed_one(
    arch: str, flags: dict[str, Any], shared: bool, tmp_path: Path
) -> None:
    """shared_experts_fusion_disable_reason of srt/models/minimax_m3.py."""
    told = json.loads(PUBLISHED.read_text())["MiniMaxAI/MiniMax-M3"]
    (tmp_path / "config.json").write_text(
        json.dumps({**told, "quantization_config": {"quant_method": "mxfp8"}})
    )
    asked = ServerFlags(model_path=str(tmp_path), arch=arch, sglang_version="0.5.23", tp=8, **flags)
    sizes = {*linear_sizes(resolve_deployment(asked, environ={}))}
    hidden, split = 6144, 1 if "moe_a2a_backend" in flags else 8
    attention = {(hidden, 1280), (hidden, 1280 + 256), (1024, hidden)}
    of_shared = {(hidden, 2 * 3072 // split), (3072 // split, hidden)}
    assert sizes == attention | {(hidden, 2 * 1536), (1536, hidden)} | (of_shared if shared else set())


@pytest.mark.parametrize("release", ["0.5.16", "0.5.23"])
@pytest.mark.parametrize("arch", ["sm90", "sm100"])
@pytest.mark.parametrize(
    "asked", [{"speculative_algorithm": "NGRAM", "attention_backend": "flashinfer"}, _EAGLE]
)
def test_minimax_m3_ends_at_the_graphs_that_verify_drafts(
    asked: dict[str, Any], arch: str, release: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published()["MiniMaxAI/MiniMax-M3"].config))
    target = {"arch": arch, "sglang_version": release, "tp": 8, "flashinfer_version": None}
    found = _ends(model_path=str(tmp_path), **target, **asked)
    assert found is not None and "verifies no drafts on CUDA" in found


@pytest.mark.parametrize("arch", ["sm90", "sm100"])
@pytest.mark.parametrize("backend", ["auto", "flashinfer_cutlass"])
def test_afmoes_experts_are_tritons_whatever_its_backend(backend: str, arch: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(PUBLISHED_TRINITY)
    asked = {"model_path": str(tmp_path), "arch": arch, "moe_runner_backend": backend, "tp": 8}
    deployment = resolve_deployment(ServerFlags(**asked, sglang_version="0.5.23"), environ={})
    assert deployment.server.tunes is (backend == "flashinfer_cutlass")
    assert asks_nothing(deployment) and not unplanned(deployment) and not expected_keys(deployment)
    assert deployment.runtime.moe_runner_backend == "triton"


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
    found = _ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("flags", "why"), [({"tp": 8}, None), ({"tp": 4, "pp": 2}, "no pipeline stages")])
def test_some_end_at_stages(flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["microsoft/Phi-3.5-MoE-instruct"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = _ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("section", "plain", "tp", "why"),
    [
        ("fp8 a row", [], 1, None),
        ("fp8 a block", [], 1, None),
        ("fp8 a row", [], 2, "2 ranks cannot share quantized matrices of 1 groups of Mamba's"),
        ("fp8 a tensor", [], 1, "knows no tensors of experts in fp8 a tensor"),
        ("int4", [], 1, "knows no tensors of experts in packed a group"),
        ("nvfp4", ["re:.*block_sparse_moe.*"], 1, None),
        ("modelopt fp8", [], 1, "loads weights in compressed-tensors, and these are in modelopt_fp8"),
        ("awq", [], 1, "loads weights in compressed-tensors, and these are in awq_marlin"),
    ],
)
def test_granite_4_loads_what_compressed_tensors_has_of_it(
    section: str, plain: list[str], tp: int, why: str | None, tmp_path: Path
) -> None:
    told = config_of("ibm-granite/granite-4.0-h-small", section)
    told["quantization_config"] = {**told["quantization_config"], "ignore": ["lm_head", *plain]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = _ends(model_path=str(tmp_path), tp=tp, arch="sm90")
    assert found is None if why is None else found is not None and why in found


_COHERE = {
    "model_type": "cohere2_moe", "architectures": ["Cohere2MoeForCausalLM"], "dtype": "bfloat16",
    "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32, "vocab_size": 512,
    "intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "expert_selection_fn": "sigmoid",
}  # fmt: skip
LLAMA, STEP = "nvidia/Llama-4-Scout-17B-16E-Instruct-", "stepfun-ai/Step-3.5-Flash"
CUTEDSL = {"moe_runner_backend": "flashinfer_cutedsl", "quantization": "modelopt_fp4"}
ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
WEIGHTED, CHOSEN = "does not take rows that are weighted", "does not take how experts of"
BF16, FP8, FP4 = "meta-llama/Llama-4-Scout-17B-16E-Instruct", f"{LLAMA}FP8", f"{LLAMA}NVFP4"


@pytest.mark.parametrize(
    ("model", "release", "backend", "why"),
    [
        (BF16, "0.5.14", CUTLASS, None),
        (FP8, "0.5.14", CUTLASS, None),
        (FP4, "0.5.14", CUTLASS, WEIGHTED),
        (BF16, "0.5.15", CUTLASS, WEIGHTED),
        (FP8, "0.5.20", CUTLASS, WEIGHTED),
        (FP8, "0.5.21", CUTLASS, None),
        (FP4, "0.5.23", CUTLASS, WEIGHTED),
        (FP4, "0.5.23", CUTEDSL, WEIGHTED),
        (BF16, "0.5.23", TRTLLM, CHOSEN),  # its shares are not made one
        (BF16, "0.5.23", ROUTED, None),
        (FP8, "0.5.22", TRTLLM, None),
        (FP8, "0.5.22", ROUTED, CHOSEN),
        (FP8, "0.5.23", ROUTED, None),
        (FP4, "0.5.17", TRTLLM, None),
        (STEP, "0.5.22", TRTLLM, CHOSEN),
        (STEP, "0.5.22", ROUTED, None),
        (STEP, "0.5.23", TRTLLM, None),
        (f"{STEP}-FP8", "0.5.13", TRTLLM, CHOSEN),
    ],
)
def test_experts_that_are_chosen_or_weighted_otherwise(
    model: str, release: str, backend: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = published()[model]
    (tmp_path / "config.json").write_text(json.dumps(found.config))
    if found.modelopt_file:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(found.modelopt_file))
    versions = {"sglang_version": release, "flashinfer_version": None}
    ends = _ends(model_path=str(tmp_path), tp=4, **versions, **backend)
    assert ends is None if why is None else ends is not None and why in ends


@pytest.mark.parametrize(
    ("tp", "dp", "why"), [(4, 1, None), (8, 1, "20 cannot be split over 8"), (8, 2, None)]
)
def test_ears_of_qwen3_omni_cannot_be_split_over_eight(
    tp: int, dp: int, why: str | None, tmp_path: Path
) -> None:
    config = next(one.config for one in checkpoints() if one.name == "Qwen/Qwen3-Omni-30B-A3B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    spread = {"tp": tp, "dp": dp, "enable_dp_attention": dp > 1}
    flags = ServerFlags(model_path=str(tmp_path), arch="sm90", sglang_version="0.5.23", **spread)
    deployment = resolve_deployment(flags, environ={})
    ends = never_starts(deployment)
    assert ends is None if why is None else ends is not None and why in ends
    assert "what images and sound take" in deployment.not_counted


@pytest.mark.parametrize(
    ("release", "renormalize", "why"),
    [("0.5.22", False, CHOSEN), ("0.5.23", False, None), ("0.5.22", True, None), ("0.5.23", True, None)],
)
def test_command_a_plus_names_how_it_routes_and_north_chooses_itself(
    release: str, renormalize: bool, why: str | None, tmp_path: Path
) -> None:
    told = {**_COHERE, "norm_topk_prob": renormalize}
    (tmp_path / "config.json").write_text(json.dumps(told))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm100", sglang_version=release)
    deployment = resolve_deployment(flags, environ={})
    ends = never_starts(deployment)
    assert deployment.server.moe_runner_backend == "flashinfer_trtllm"
    assert ends is None if why is None else ends is not None and why in ends
    assert (routing_of(deployment) == "logits") is (renormalize or release == "0.5.22")


def test_compressed_nvfp4_experts_start_and_their_lookups_are_not_known(tmp_path: Path) -> None:
    """As Command A+ is published in four bits: SGLang chooses its backend for it."""
    weights = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": 16,
        "symmetric": True,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": weights}
    section = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": group},
    }
    (tmp_path / "config.json").write_text(json.dumps({**_COHERE, "quantization_config": section}))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm100", sglang_version="0.5.23")
    deployment = resolve_deployment(flags, environ={})
    assert deployment.server.moe_runner_backend == "flashinfer_trtllm"
    assert never_starts(deployment) is None and expected_keys(deployment) == ()
    assert any("experts of flashinfer_trtllm" in gap.what for gap in unplanned(deployment))


def test_compressed_experts_run_in_four_bits_alone(tmp_path: Path) -> None:
    config = next(dict(preset.config) for preset in presets() if preset.name == "DeepSeek-V3")
    int4 = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}
    for weights, ends in ((int4, False), ({**int4, "num_bits": 8}, True)):
        groups = {"group_0": {"weights": weights}}
        section = {"quant_method": "compressed-tensors", "config_groups": groups}
        (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
        assert (_ends(model_path=str(tmp_path), tp=8, **TRTLLM) is not None) is ends


def test_nothing_is_planned_of_it_and_the_first_line_says_why() -> None:
    flags = {**QWEN, **TRTLLM, "arch": "sm90", "sglang_version": "0.5.23", "flashinfer_version": "0.7.2"}
    deployment = resolve_deployment(ServerFlags(**flags), environ={})
    verdict = verdict_of(make_plan(deployment, gpus=()))
    assert expected_keys(deployment) == () and not verdict.runs and verdict.exit_code == 1
    assert verdict.says.startswith("tunes nothing: this server does not start: FlashInfer has no")


@pytest.mark.parametrize(
    ("context", "environ", "ends"),
    [
        ({}, {}, True),
        ({"context_length": 2048}, {}, False),
        ({"context_length": 2049}, {}, True),
        ({}, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}, False),
        ({}, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "0"}, True),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_a_draft_holds_the_context_of_its_target(
    release: str, context: dict[str, Any], environ: dict[str, str], ends: bool, tmp_path: Path
) -> None:
    for name in ("llama", "llama_eagle3"):
        told = json.loads((Path(__file__).parents[1] / f"oracle/models/{name}.json").read_text())
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(told["config"]))
    drafts = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": tmp_path / "llama_eagle3"}
    own = {name: str(value) for name, value in drafts.items()}
    flags: dict[str, Any] = {"model_path": str(tmp_path / "llama"), "arch": "sm90", **own, **context}
    deployment = resolve_deployment(ServerFlags(**flags, sglang_version=release), environ=environ)
    found = never_starts(deployment)
    assert found is not None and "its draft has 2048 positions" in found if ends else found is None


_OF_ONE_STAGE = (
    *("google/gemma-3-1b-it", "LiquidAI/LFM2-1.2B", "OpenGVLab/InternVL3-8B", "tencent/Hy3-preview"),
    *("CohereForAI/c4ai-command-r7b-12-2024", "tiiuae/Falcon-H1-0.5B-Instruct", "arcee-ai/Trinity-Mini"),
)


@pytest.mark.parametrize("name", _OF_ONE_STAGE)
def test_what_has_no_stages_ends_at_a_second(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[name]))
    assert _ends(model_path=str(tmp_path), arch="sm90") is None
    assert "has no pipeline stages" in str(_ends(model_path=str(tmp_path), arch="sm90", pp=2))


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
    assert _ends(**flags) is None
    before = _ends(**flags, sglang_version="0.5.22", flashinfer_version=None)
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
    found = _ends(model_path=str(tmp_path), **flags)
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
    found = _ends(model_path=str(tmp_path), **flags)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("listed", "own"), [(["Olmo3ForCausalLM"], True), (None, True), (["Other"], False)])
def test_olmo_3_is_served_by_the_class_and_the_rules_of_olmo_2(listed: list[str] | None, own: bool) -> None:
    hf = {"model_type": "olmo3", **({} if listed is None else {"architectures": listed})}
    assert (Checkpoint(hf, {}).architecture == "Olmo2ForCausalLM") is own
