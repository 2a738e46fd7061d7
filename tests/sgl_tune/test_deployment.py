"""From flags to a deployment: what SGLang would resolve, and what is said to be assumed."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment, deployment_from_json, deployment_to_json
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.errors import CheckFailed, UsageError
from tests.sgl_tune.modelopt import as_checkpoint
from tests.sgl_tune.planning import deployment

DENSE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "intermediate_size": 128,
}


def _deployment(environ: dict[str, str] | None = None, **flags: Any) -> Deployment:
    return deployment(environ, **{"model_path": "Qwen3-30B-A3B", **flags})


def _model_folder(folder: Path, **config: Any) -> str:
    (folder / "config.json").write_text(json.dumps({**DENSE, **config}))
    return str(folder)


# Resolved as the server arguments' hooks of SGLang 0.5.23 do: (quantization, MoE backend).
@pytest.mark.parametrize(
    ("model", "arch", "resolved"),
    [
        ("Qwen3-30B-A3B", "sm90", (None, "auto")),
        ("Qwen3-30B-A3B", "sm100", (None, "flashinfer_trtllm")),
        ("Qwen3-30B-A3B", "sm103", (None, "flashinfer_trtllm")),
        ("Qwen3-30B-A3B", "sm120", (None, "auto")),
        ("DeepSeek-V3", "sm90", (None, "auto")),
        ("DeepSeek-V3", "sm100", ("fp8", "flashinfer_trtllm")),
        ("DeepSeek-V3.2", "sm100", ("fp8", "flashinfer_trtllm")),
        ("GLM-5.1-FP8", "sm100", ("fp8", "flashinfer_trtllm")),
        ("gpt-oss-120b", "sm100", (None, "flashinfer_mxfp4")),
        ("gpt-oss-120b", "sm120", (None, "flashinfer_mxfp4")),
        ("gpt-oss-120b", "sm90", (None, "triton_kernel")),
        ("Mixtral-8x7B", "sm100", (None, "auto")),
        ("Llama-3.1-70B", "sm100", (None, "auto")),
    ],
)
def test_unset_flags_follow_model_and_gpu(model: str, arch: str, resolved: tuple[str | None, str]) -> None:
    server = _deployment(model_path=model, arch=arch).server
    assert (server.quantization, server.runtime.kernels.moe) == resolved


@pytest.mark.parametrize(
    ("quantization", "arch", "backend"),
    [
        ("modelopt_fp4", "sm120", "flashinfer_cutlass"),
        ("modelopt_fp4", "sm110", "flashinfer_cutlass"),
        ("modelopt_fp4", "sm90", "auto"),
        ("modelopt_fp4", "sm100", "flashinfer_trtllm"),
    ],
)
def test_an_unset_moe_backend_follows_the_quantization(quantization: str, arch: str, backend: str) -> None:
    flags = {"model_path": "Qwen3-30B-A3B", "quantization": quantization, "arch": arch}
    found = _deployment(**as_checkpoint(flags)).server
    assert (found.quantization, found.runtime.kernels.moe) == (quantization, backend)


@pytest.mark.parametrize("method", ["fp8", "modelopt_fp8", "modelopt_fp4", "mxfp4"])
def test_a_plain_checkpoint_is_not_quantized_by_a_flag(method: str) -> None:
    with pytest.raises(CheckFailed, match=f"not known: --quantization {method} over a plain checkpoint"):
        _deployment(quantization=method)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"moe_dense_tp_size": 1}, "--moe-dense-tp-size 1"),
        ({"disaggregation_mode": "prefill"}, "--disaggregation-mode prefill"),
        ({"prefill_attention_backend": "fa3"}, "--prefill-attention-backend fa3"),
        ({"chunked_prefill_size": 100, "page_size": 64}, "a chunk of 100 tokens is not of whole pages of 64"),
        (
            {"model_path": "GLM-5.1-FP8", "speculative_algorithm": "EAGLE", "pp": 2},
            "drafts on pipeline stages",
        ),
    ],
)
def test_what_only_a_server_checks_is_not_known(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckFailed, match=f"not known: {said}"):
        _deployment(**flags)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"architectures": None}, "config.json names no architecture"),
        ({"auto_map": {"AutoConfig": "a.OtherConfig"}}, "auto_map names a class of its own, OtherConfig"),
        ({"auto_map": {"AutoModelForCausalLM": "a.Other"}}, "auto_map names a class of its own, Other"),
    ],
)
def test_another_class_is_not_taken_for_the_familys(tmp_path: Path, members: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=f"not known: .*{said}"):
        _deployment(model_path=_model_folder(tmp_path, **members))


def test_a_class_that_is_called_as_the_familys_is_it(tmp_path: Path) -> None:
    own = {"AutoConfig": "modeling.LlamaConfig", "AutoModelForCausalLM": "modeling.LlamaForCausalLM"}
    assert _deployment(model_path=_model_folder(tmp_path, auto_map=own)).server.config_class == "LlamaConfig"


def test_an_all_to_all_spreads_experts() -> None:
    flags = {"tp": 8, "dp": 8, "enable_dp_attention": True, "moe_a2a_backend": "flashinfer"}
    found = _deployment(arch="sm90", moe_runner_backend="flashinfer_cutlass", **flags)
    assert (found.server.runtime.kernels.moe, found.parallel.moe_ep) == ("flashinfer_cutlass", 8)


def test_modelopts_own_file_tells_the_loader_and_not_the_arguments(tmp_path: Path) -> None:
    experts: dict[str, Any] = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}
    experts |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    model = _model_folder(tmp_path, **experts)
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    found = _deployment(model_path=model, arch="sm100")
    assert (found.quantization, found.server.quantization) == ("modelopt_fp4", None)
    _model_folder(tmp_path, **experts, quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"})
    found = _deployment(model_path=model, arch="sm100")
    assert (found.quantization, found.server.quantization) == ("modelopt_fp8", "modelopt_fp8")
    (tmp_path / "hf_quant_config.json").write_text("[]")
    _model_folder(tmp_path)
    with pytest.raises(UsageError, match=r"hf_quant_config\.json holds a list"):
        _deployment(model_path=model)


def test_the_weights_quantization_is_the_checkpoints_where_the_key_says_none() -> None:
    found = _deployment(model_path="DeepSeek-V3")
    assert found.server.quantization is None and found.quantization == "fp8"


@pytest.mark.parametrize(
    ("checkpoint", "asked", "dtype"),
    [
        ("bfloat16", None, "bfloat16"),
        ("bfloat16", "auto", "bfloat16"),
        ("float32", None, "float16"),
        ("float16", None, "float16"),
        ("float16", "bfloat16", "bfloat16"),
        ("bfloat16", "float", "float32"),
    ],
)
def test_where_the_dtype_comes_from(tmp_path: Path, checkpoint: str, asked: str | None, dtype: str) -> None:
    model = _model_folder(tmp_path, torch_dtype=checkpoint)
    assert _deployment(model_path=model, dtype=asked).runtime.dtype == dtype


@pytest.mark.parametrize(
    ("flags", "attention_dp", "replicas"),
    [
        ({"tp": 8, "dp": 8, "enable_dp_attention": True}, 8, 1),
        ({"tp": 8, "dp": 8}, 1, 8),
        ({"tp": 8, "dp": 2, "enable_dp_attention": True}, 2, 1),
        ({"tp": 4, "dp": 3}, 1, 3),
        ({"tp": 4, "dp": 2, "enable_dp_attention": False}, 1, 2),
        ({"tp": 8, "attn_dp_size": 4}, 4, 1),
        ({"tp": 8}, 1, 1),
        ({"tp": 8, "enable_dp_attention": True}, 1, 1),
    ],
)
def test_dp_means_groups_or_replicas(flags: dict[str, Any], attention_dp: int, replicas: int) -> None:
    found = _deployment(**flags)
    assert (found.parallel.attn_dp, found.replicas) == (attention_dp, replicas)


def test_dp_alone_is_replicas_and_says_so() -> None:
    said = "dp 2 without --enable-dp-attention: 2 replicas, each on 8 GPUs"
    assert said in _deployment(tp=8, dp=2).inputs.notes


def _demo(**flags: Any) -> Deployment:
    return resolve_deployment(ServerFlags.of(**flags, arch="cpu"), Place(environ={}))


def test_the_demo_alone_has_dp_attention_of_its_own_and_says_so() -> None:
    found = _demo(tp=8, dp=8)
    assert found.parallel.attn_dp == 8 and "--enable-dp-attention" in found.inputs.notes[1]
    for flags in ({"tp": 8, "dp": 3}, {"tp": 8, "dp": 8, "enable_dp_attention": False}):
        assert not _demo(**flags).parallel.enable_dp_attention


def test_no_model_is_the_demo_and_says_so() -> None:
    found = _demo(tp=8, dp=8)
    assert found.model_path == "demo-moe" and "no model given" in found.inputs.notes[0]
    assert found.server.runtime.kernels.moe == "flashinfer_cutlass"
    assert found.runtime.max_running_requests == 256
    own = _demo(max_running_requests=64)
    assert own.runtime.max_running_requests == 64


def test_cache_dir_is_expanded_only_by_default() -> None:
    assert _deployment().cache_dir == Path.home() / ".cache/sglang"
    named = {"SGLANG_CACHE_DIR": "~/c"}
    assert str(_deployment(named).cache_dir) == "~/c"
    assert str(_deployment(named, cache_dir="here").cache_dir) == "here"


def test_a_draft_has_a_deployment_of_its_own() -> None:
    found = _deployment(model_path="DeepSeek-V3", speculative_algorithm="nextn", arch="sm100")
    assert found.runtime.speculative is not None
    assert found.server.draft is not None and found.draft_deployment is not None
    draft = found.draft_deployment.server
    assert (draft.draft, draft.quantization) == (None, "fp8")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tp": 0}, "--tp is 0"),
        ({"tp": 8, "ep": 3}, "--ep 3 does not divide --tp 8"),
        ({"tp": 4, "dp": 3, "enable_dp_attention": True}, "--dp 3 does not divide --tp 4"),
        ({"tp": 4, "nnodes": 3}, "--nnodes 3"),
        ({"tp": 4, "dp": 2, "nnodes": 2, "enable_dp_attention": False}, "starts no replicas over --nnodes 2"),
        ({"node_rank": 1}, "--node-rank 1"),
        ({"arch": "hopper"}, "--gpu 'hopper' is not a GPU's architecture"),
        ({"sglang_version": "new"}, "'new' is not a version"),
        ({"model_path": "nowhere/model"}, "no model at 'nowhere/model'"),
    ],
)
def test_wrong_flags_are_named(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")) as caught:
        _deployment(**flags)
    assert caught.value.exit_code == 2


def test_an_unknown_model_lists_the_presets() -> None:
    with pytest.raises(UsageError) as caught:
        _deployment(model_path="nowhere/model")
    assert caught.value.remedy is not None and "GLM-5.1-FP8" in caught.value.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "holds a list"),
        (b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}', "vocab_size is missing"),
        (json.dumps({**DENSE, "num_key_value_heads": "x"}).encode(), "num_key_value_heads is 'x'"),
        (json.dumps({**DENSE, "hidden_size": True}).encode(), "hidden_size is True"),
        (json.dumps({**DENSE, "rope_scaling": "x"}).encode(), "rope_scaling is 'x'"),
    ],
)
def test_a_broken_config_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        _deployment(model_path=str(tmp_path))


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        _deployment(model_path=str(tmp_path))


def test_a_deployment_goes_through_json_unchanged() -> None:
    for model, attends_apart in (("GLM-5.1-FP8", True), ("gpt-oss-20b", True), ("Llama-3.1-8B", False)):
        flags = {"enable_dp_attention": attends_apart, "speculative_algorithm": "EAGLE"}
        found = _deployment(model_path=model, tp=8, dp=8, flashinfer_autotune_skip_ops=["a"], **flags)
        data = json.loads(json.dumps(deployment_to_json(found)))
        assert deployment_from_json(data, "a manifest") == found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("asked", "tp_size"), "8"),
        (("asked", "tp_size"), True),
        (("asked", "tp_size"), 0),
        (("asked",), None),
        (("checkpoint", "hf", "num_hidden_layers"), 1.5),
        (("checkpoint", "hf"), []),
        (("gpu", "memory_mib"), "much"),
        (("sglang_version",), "new"),
        (("notes",), [1]),
        (("cache_dir",), 3),
    ],
)
def test_a_hostile_manifest_is_one_sentence(path: tuple[str, ...], value: Any) -> None:
    data: Any = json.loads(json.dumps(deployment_to_json(_deployment())))
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(UsageError, match="a manifest: "):
        deployment_from_json(data, "a manifest")


def test_a_missing_member_of_a_manifest_is_named() -> None:
    data = deployment_to_json(_deployment())
    del data["gpu"]["memory_mib"]
    with pytest.raises(UsageError, match=r"deployment\.gpu\.memory_mib is missing"):
        deployment_from_json(data, "a manifest")


@pytest.mark.parametrize(
    "flags",
    [
        {"quantization": "awq"},
        {"speculative_algorithm": "medusa"},
        {"speculative_algorithm": "NGRAM"},
        {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "a"},
        {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "a/draft"},
    ],
)
def test_what_the_core_does_not_have_needs_a_server(flags: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match="not known: ") as caught:
        _deployment(**flags)
    assert caught.value.exit_code == 1 and "`sgl-tune server add 0.5.23`" in str(caught.value.remedy)


def test_a_family_that_the_core_does_not_have_needs_a_server(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="not known: model_type 'qwen2' is not of the core's families"):
        _deployment(model_path=_model_folder(tmp_path, model_type="qwen2"))


@pytest.mark.parametrize("release", ["0.5.17", "0.5.22", "0.6.0", "0.5"])
def test_another_release_is_not_known(release: str) -> None:
    with pytest.raises(CheckFailed, match=f"not known: SGLang {release}: the core plans as 0.5.23") as caught:
        _deployment(sglang_version=release)
    assert f"`sgl-tune server add {release}`" in str(caught.value.remedy)
