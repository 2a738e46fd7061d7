"""Servers that end in the class of one family, of what others start with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.dense_shapes import linear_sizes
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import asks_nothing, expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config
from tests.memory.quantized import config_of
from tests.oracle.published import published
from tests.sgl_tune.ends import CUTLASS, PUBLISHED, PUBLISHED_TRINITY, TRTLLM, why_it_ends


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
    found = why_it_ends(model_path=str(tmp_path), arch="sm90")
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize(
    ("tp", "method", "ends"), [(16, "modelopt_fp8", True), (8, "modelopt_fp8", False), (16, "fp8", False)]
)
def test_experts_that_run_one_by_one_are_whole(tp: int, method: str, ends: bool) -> None:
    found = why_it_ends(model_path="Mixtral-8x7B", tp=tp, nnodes=2, quantization=method, arch="sm90")
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
    found = why_it_ends(model_path=str(tmp_path), tp=8, **flags)
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
    found = why_it_ends(model_path=str(tmp_path), **{"flashinfer_version": None, **flags})
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
    found = why_it_ends(model_path=str(tmp_path), **asked)
    assert found is not None and "rope_scaling has not what" in found if ends else found is None


@pytest.mark.parametrize(
    ("name", "few"),
    [
        ("a/longcat-flash-chat-stretched-by-one", {"n_routed_experts": 4, "num_experts_per_tok": 2}),
        ("deepseek-ai/deepseek-moe-16b-base", {"n_routed_experts": 4, "num_experts_per_tok": 2}),
        ("a/xverse-moe-a4.2b-by-its-card", {"num_experts": 4, "moe_top_k": 2}),
    ],
)
def test_some_have_an_expert_a_rank(name: str, few: dict[str, int], tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())[name]
    (tmp_path / "config.json").write_text(json.dumps({**told, **few}))
    assert why_it_ends(model_path=str(tmp_path), tp=8) == "4 experts are fewer than 8 ranks"
    assert why_it_ends(model_path=str(tmp_path), tp=4) is None


def test_minimax_m3s_text_alone_ends_where_its_class_drops_what_is_read(tmp_path: Path) -> None:
    told = json.loads(PUBLISHED.read_text())["MiniMaxAI/MiniMax-M3"]
    alone = {**told["text_config"], "model_type": "minimax_m3_vl_text", "torch_dtype": "bfloat16"}
    for file, ends in ((told, False), (alone, True)):
        (tmp_path / "config.json").write_text(json.dumps(file))
        found = why_it_ends(model_path=str(tmp_path), tp=8)
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
    sizes = {(k, n) for k, n, _ in linear_sizes(resolve_deployment(asked, environ={}), "mxfp8")}
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
    found = why_it_ends(model_path=str(tmp_path), **target, **asked)
    assert found is not None and "verifies no drafts on CUDA" in found


_EAGER = {"disable_cuda_graph": True}


@pytest.mark.parametrize(
    ("release", "asked", "said"),
    [
        ("0.5.15", {}, "has no class of MiniMax-M3 and takes transformers'"),
        ("0.5.16", {}, None),
        ("0.5.16", {"dtype": "float16"}, "MiniMax-M3's router multiplies in bfloat16 alone"),
        ("0.5.23", {"dtype": "float16"}, "MiniMax-M3's router multiplies in bfloat16 alone"),
        ("0.5.17", {**_EAGER, **_EAGLE}, "MiniMax-M3 has no layers that draft"),
        ("0.5.23", {**_EAGER, **_EAGLE}, "MiniMax-M3 has no layers that draft"),
        ("0.5.17", {**_EAGER, "draft": True}, "gives no draft its head before 0.5.18"),
        ("0.5.18", {**_EAGER, "draft": True}, None),
    ],
)
def test_minimax_m3_ends_without_a_class_at_its_router_and_at_drafts_that_share_nothing(
    release: str, asked: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published()["MiniMaxAI/MiniMax-M3"].config))
    asked = dict(asked)
    if asked.pop("draft", False):
        head = published()["lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"].config
        (tmp_path / "draft").mkdir()
        (tmp_path / "draft/config.json").write_text(json.dumps({**head, "max_position_embeddings": 1 << 20}))
        asked |= {"speculative_algorithm": "EAGLE3", "dtype": "bfloat16"}
        asked["speculative_draft_model_path"] = str(tmp_path / "draft")
    target = {"sglang_version": release, "tp": 8, "flashinfer_version": None}
    found = why_it_ends(model_path=str(tmp_path), **target, **asked)
    assert found is None if said is None else found is not None and said in found


def test_weights_that_nobody_loads_have_no_names_to_miss(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published()["MiniMaxAI/MiniMax-M3"].config))
    command = ["sglang", "serve", "--model-path", str(tmp_path), "--tp", "8", "--load-format", "dummy"]
    flags = ServerFlags(arch="sm100", sglang_version="0.5.15")
    assert never_starts(select_deployments(flags, command, environ={})[0]) is None


def test_a_model_whose_layers_are_unknown_on_a_server_may_be_known_to_end_there(tmp_path: Path) -> None:
    """dots.note, quantized while it is loaded."""
    (tmp_path / "config.json").write_text(json.dumps(published()["a/dots-note-with-an-indexer"].config))
    flags = {"model_path": str(tmp_path), "quantization": "fp8", "tp": 8, "sglang_version": "0.5.23"}
    asked = ServerFlags(**flags, arch="sm100")
    assert resolve_deployment(asked, environ={}).shape.model is None
    found = why_it_ends(**flags, flashinfer_version=None)
    assert found is not None and "prefill on fa3 or fa4" in found


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
    "name",
    [
        *("arcee-ai/Trinity-Mini", "deepseek-ai/deepseek-moe-16b-base", "databricks/dbrx-instruct"),
        "a/xverse-moe-a4.2b-by-its-card",
    ],
)
@pytest.mark.parametrize(
    ("backend", "release", "ends"),
    [
        ("flashinfer_trtllm", "0.5.12", True),
        ("flashinfer_trtllm", "0.5.22", True),
        ("flashinfer_trtllm", "0.5.23", False),
        ("flashinfer_trtllm_routed", "0.5.22", False),
        ("triton_kernel", "0.5.22", True),
        ("triton", "0.5.22", False),
    ],
)
def test_tritons_experts_are_given_no_choice_of_another_backends(
    name: str, backend: str, release: str, ends: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[name]))
    target = {"arch": "sm100", "sglang_version": release, "flashinfer_version": None}
    found = why_it_ends(model_path=str(tmp_path), moe_runner_backend=backend, **target)
    assert found is not None and "chooses no experts for Triton's" in found if ends else found is None


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, None),
        ({"attn_config": {"kv_n_heads": 8, "architectures": None}}, "attn_config has architectures, which"),
        ({"ffn_config": {"hidden_size": 6144}}, "ffn_config has hidden_size, which SGLang's class"),
    ],
)
def test_dbrx_ends_at_what_its_class_does_not_know(
    told: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    whole = json.loads(PUBLISHED.read_text())["databricks/dbrx-instruct"]
    (tmp_path / "config.json").write_text(json.dumps({**whole, **told}))
    found = why_it_ends(model_path=str(tmp_path), tp=8)
    assert found is None if why is None else found is not None and why in found


_OWN_CLASS = {"auto_map": {"AutoConfig": "configuration_dbrx.DbrxConfig"}}


@pytest.mark.parametrize(
    ("release", "told", "experts", "trusted", "ends"),
    [
        ("0.5.12", {}, {}, False, "moe_jitter_eps is 0, and transformers' class wants a float: 0.0"),
        ("0.5.21", {}, {}, False, "moe_jitter_eps is 0"),
        ("0.5.21", {}, {"moe_jitter_eps": 0.0}, False, None),
        ("0.5.21", _OWN_CLASS, {}, False, "moe_jitter_eps is 0"),
        ("0.5.21", _OWN_CLASS, {}, True, None),
        ("0.5.21", {}, {}, True, "moe_jitter_eps is 0"),
        ("0.5.22", {}, {}, False, None),
        ("0.5.23", {}, {"moe_normalize_expert_weights": 1}, False, "moe_normalize_expert_weights is 1"),
        ("0.5.23", {}, {"moe_loss_weight": 10**400}, False, "moe_loss_weight is 1000"),
    ],
)
def test_dbrx_ends_at_whole_numbers_that_transformers_wants_as_floats(
    release: str,
    told: dict[str, Any],
    experts: dict[str, Any],
    trusted: bool,
    ends: str | None,
    tmp_path: Path,
) -> None:
    file = {**json.loads(PUBLISHED.read_text())["databricks/dbrx-instruct"], **told}
    file["ffn_config"] = {**file["ffn_config"], **experts}
    (tmp_path / "config.json").write_text(json.dumps(file))
    trusts = "--trust-remote-code" if trusted else ""
    command = f"python -m sglang.launch_server --model-path {tmp_path} --tp 8 {trusts}"
    asked = ServerFlags(arch="sm90", sglang_version=release)
    found = never_starts(select_deployments(asked, command=command.split())[0])
    assert found is None if ends is None else found is not None and ends in found


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
    found = why_it_ends(model_path=str(tmp_path), tp=tp, arch="sm90")
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("tp", "dp", "why"), [(4, 1, None), (8, 1, "20 cannot be split over 8"), (8, 8, None)]
)
def test_ears_of_qwen3_omni_cannot_be_split_over_eight(
    tp: int, dp: int, why: str | None, tmp_path: Path
) -> None:
    config = published_config("Qwen/Qwen3-Omni-30B-A3B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    spread = {"tp": tp, "dp": dp, "enable_dp_attention": dp > 1}
    flags = ServerFlags(model_path=str(tmp_path), arch="sm90", sglang_version="0.5.23", **spread)
    deployment = resolve_deployment(flags, environ={})
    ends = never_starts(deployment)
    assert ends is None if why is None else ends is not None and why in ends
    assert "what images and sound take" in deployment.not_counted
