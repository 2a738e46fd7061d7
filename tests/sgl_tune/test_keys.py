"""The entries a server will ask for: exact keys, every bucket of tuning and of serving."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.asked import TunedOp
from sgl_tune.cache.record import parse_key
from sgl_tune.deployment.model_files import presets
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.verdict import verdict_of
from tests.sgl_tune.modelopt import quantized
from tests.sgl_tune.planning import deployment

TO_4096 = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096)
CUTLASS = {"model_path": "Qwen3-30B-A3B", "moe_runner_backend": "flashinfer_cutlass"}
DEEPSEEK = {"model_path": "DeepSeek-V3", "arch": "sm100", "tp": 8}


def _ops(**flags: Any) -> tuple[TunedOp, ...]:
    return expected_keys(deployment(**flags))


def _verdict(**flags: Any) -> str:
    return verdict_of(make_plan(deployment(**flags), gpus=())).says


def _only(**flags: Any) -> TunedOp:
    (op,) = _ops(**flags)
    return op


def _keys_of(name: str, **flags: Any) -> tuple[str, ...]:
    (keys,) = (op.keys for op in _ops(**flags) if op.op == name)
    return keys


def _in_modelopt(folder: Path, name: str, algorithm: str) -> str:
    return quantized(folder, name, quant_method="modelopt", quant_algo=algorithm, ignore=["lm_head"])


def test_fp8_gemms_of_latent_attention_are_of_its_factors(tmp_path: Path) -> None:
    listed = ["lm_head", "*.mlp.*"]
    model = quantized(tmp_path, "DeepSeek-V3", quant_method="modelopt", quant_algo="FP8", ignore=listed)
    keys = _keys_of("fp8_gemm", model_path=model, arch="sm100", tp=8)
    factors = (7168, 1536 + 512 + 64), (1536, 16 * 192), (512, 16 * 256), (16 * 128, 7168)
    folded = {"16, 128, 512", "16, 512, 128"}  # a product a head
    assert {key.split("), (")[1] for key in keys} == {f"1, {k}, {n}" for k, n in factors} | folded


@pytest.mark.parametrize(
    ("arch", "runner"), [("sm100", "CuteDSLFp4GemmRunner"), ("sm120", "CutlassFp4GemmRunner")]
)
def test_fp4_gemms_are_padded_and_named_by_their_backend(arch: str, runner: str, tmp_path: Path) -> None:
    found = _keys_of("fp4_gemm", model_path=_in_modelopt(tmp_path, "Llama-3.1-8B", "NVFP4"), tp=2, arch=arch)
    down = "(3584, 4096), (-1, 448), (448, 4096), (), (0,), (-1, 4096), (0,), (0,)"
    assert any(key.startswith(f"('fp4_gemm', '{runner}', ((1, 3584), {down}, (-1,))") for key in found)


def test_cutlass_bf16_is_two_ops_of_one_shape() -> None:
    gemm1, gemm2 = _ops(**CUTLASS)
    extras = (
        "(torch.bfloat16, torch.bfloat16, torch.bfloat16, 8, 1, 1, 1, False, False, False, False, False, "
    )
    shapes = "((2048, 2048), (128, 1536, 2048), (0,), (128, 2048, 768), (0,))"
    key = f"'MoERunner', {shapes}, {extras}False, True, 3, False, False))"
    assert f"('trtllm::fused_moe::gemm1', {key}" in gemm1.keys
    assert f"('trtllm::fused_moe::gemm2', {key}" in gemm2.keys
    assert gemm1.policy == ("cuda_graph_profile_replays", None, "l2_cache_policy", "hot")
    assert gemm1.buckets == (*TO_4096, 8192) and gemm1.serving_only == ()


@pytest.mark.parametrize(
    ("flags", "shapes", "sizes"),
    [
        ({"tp": 4}, "(128, 384, 2048), (0,), (128, 2048, 192), (0,)", "8, 4, 1, 1,"),
        ({"tp": 4, "ep": 4}, "(32, 1536, 2048), (0,), (32, 2048, 768), (0,)", "8, 1, 4, 1,"),
    ],
)
def test_keys_of_cutlass_have_the_shapes_of_one_rank(flags: dict[str, int], shapes: str, sizes: str) -> None:
    for op in _ops(**CUTLASS, **flags):
        assert all(shapes in key and sizes in key for key in op.keys)


def test_cutlass_in_modelopt_fp8_keeps_a_bf16_output(tmp_path: Path) -> None:
    model = _in_modelopt(tmp_path, "Qwen3-30B-A3B", "FP8")
    ops = {op.op: op for op in _ops(**{**CUTLASS, "model_path": model})}
    key = ops["trtllm::fused_moe::gemm1"].keys[0]
    assert "(torch.float8_e4m3fn, torch.float8_e4m3fn, torch.bfloat16, 8," in key
    assert "fp8_gemm" in ops


@pytest.mark.parametrize(
    ("model", "ep", "shape", "top_k"),
    [
        ("GLM-5.1", 8, "(32, 4096, 6144), (0,), (32, 6144, 2048)", 8),
        ("GLM-5.1", 1, "(257, 512, 6144), (0,), (257, 6144, 256)", 9),
        ("Qwen3-235B-A22B", 1, "(128, 384, 4096), (0,), (128, 4096, 192)", 8),
    ],
)
def test_a_shared_expert_is_fused_unless_they_are_spread(model: str, ep: int, shape: str, top_k: int) -> None:
    gemm1, _ = _ops(model_path=model, moe_runner_backend="flashinfer_cutlass", tp=8, ep=ep)
    assert shape in gemm1.keys[0] and f"torch.bfloat16, {top_k}, " in gemm1.keys[0]


def test_spread_experts_without_dp_attention_are_routed_before_the_kernel() -> None:
    routed = "((1, 7168), (0,), (1, 8), (1, 8), (1, 7168), (56, 1), (0,), (0,))"
    assert routed in _only(**DEEPSEEK, ep=8).keys[0]
    assert "('Module', 8, 32, 256, 0," in _only(**DEEPSEEK, ep=8).keys[0]
    assert "(1, 256), (1,), (1,)" in _only(**DEEPSEEK, ep=8, dp=8, enable_dp_attention=True).keys[0]


def test_nvfp4_experts_on_trtllm_have_packed_shapes(tmp_path: Path) -> None:
    model = quantized(tmp_path, "DeepSeek-V3", quant_method="modelopt", quant_algo="NVFP4", ignore=["*attn*"])
    keys = _keys_of("flashinfer::trtllm_fp4_block_scale_moe", model_path=model, arch="sm100", tp=8)
    packed = "(1, 256), (1, 8), (1, 8), (1, 3584), (1, 448), (0,), (0,))"
    assert f"((1, 7168), {packed}" in keys[0]


def test_mxfp4_of_gpt_oss_is_padded() -> None:
    key = _only(model_path="gpt-oss-120b", arch="sm100", tp=4).keys[0]
    assert "((1, 2880), (1, 128), (1, 4), (1, 4), (1, 3072), (1, 96), (0,), (0,))" in key
    assert "('Module', 4, 128, 128, 0, 17827853, 17826828, 0, 3072, 3072, 768, 3, True, 0," in key


def test_mxfp4_of_gpt_oss_runs_on_cutlass_elsewhere() -> None:
    flags = {"model_path": "gpt-oss-20b", "tp": 2, "moe_runner_backend": "flashinfer_mxfp4"}
    sm120, sm90 = (_keys_of("trtllm::fused_moe::gemm1", **flags, arch=arch) for arch in ("sm120", "sm90"))
    assert sm120[0] == (
        "('trtllm::fused_moe::gemm1', 'MoERunner', ((1, 3072), (32, 3072, 192), (32, 3072), (32, 3072, 96), "
        "(32, 3072)), (torch.float8_e4m3fn, torch.int64, torch.bfloat16, 4, 2, 1, 1, False, False, False, "
        "True, False, False, True, 3, False, False))"
    )
    assert "((1, 3072), (32, 3072, 1536), (32, 3072), (32, 3072, 768), (32, 3072))" in sm90[0]
    assert len(sm120) == 21


def test_dense_fp8_layers_have_the_shapes_of_one_rank(tmp_path: Path) -> None:
    op = _only(model_path=_in_modelopt(tmp_path, "Llama-3.1-70B", "FP8"), tp=4)
    shapes = {parts.profile[1] for key in op.keys if (parts := parse_key(key))}
    assert shapes == {(1, 8192, 2560), (1, 2048, 8192), (1, 8192, 14336), (1, 7168, 8192)}
    assert op.keys[0] == (
        "('fp8_gemm', 'CublasFp8GemmRunner', ((1, 1, 8192), (1, 8192, 2560), (1,), (1,), (1, -1, 2560), "
        "(-1,)), (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.bfloat16))"
    )


def test_kv_heads_are_replicated_beyond_their_number(tmp_path: Path) -> None:
    op = _only(model_path=_in_modelopt(tmp_path, "Llama-3.1-8B", "FP8"), tp=16)
    shapes = {parts.profile[1] for key in op.keys if (parts := parse_key(key))}
    assert (1, 4096, (2 + 2) * 128) in shapes


def test_excluded_layers_call_no_fp8_gemm(tmp_path: Path) -> None:
    config = next(dict(preset.config) for preset in presets() if preset.name == "Llama-3.1-70B")

    def shapes(*listed: str) -> set[tuple[int, ...]]:
        section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", *listed]}
        (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
        op = _only(model_path=str(tmp_path), tp=4)
        return {parts.profile[1] for key in op.keys if (parts := parse_key(key))}

    attention = {(1, 8192, 2560), (1, 2048, 8192)}
    assert shapes() == {*attention, (1, 8192, 14336), (1, 7168, 8192)} == shapes("model.layers.0.*")
    assert shapes() - shapes("*self_attn*") == attention
    assert shapes() - shapes("*o_proj") == {(1, 2048, 8192)}


@pytest.mark.parametrize(
    ("flags", "last"),
    [
        # CUTLASS is tuned up to the gathered chunk, whatever the batch
        ({"chunked_prefill_size": 8192}, (4096, 8192)),
        ({"chunked_prefill_size": 6144}, (4096, 6144)),
        ({"chunked_prefill_size": 2048}, (1792, 2048)),
        ({"chunked_prefill_size": 16384}, (4096, 8192)),
        ({"chunked_prefill_size": -1}, (4096, 8192)),
        ({"chunked_prefill_size": 8192, "tp": 8, "dp": 8}, (4096, 8192)),
    ],
)
def test_buckets_of_cutlass_end_with_the_prefill_chunk(flags: dict[str, Any], last: tuple[int, int]) -> None:
    op = _ops(**CUTLASS, **flags)[0]
    assert op.buckets[-2:] == last and op.serving_only == ()


def test_buckets_of_trtllm_follow_the_gathered_rows() -> None:
    flags = {**DEEPSEEK, "max_running_requests": 2048, "chunked_prefill_size": 16384}
    alone, gathered = _only(**flags), _only(**flags, dp=8, enable_dp_attention=True)
    assert alone.serving_only[0] == 2560 and gathered.serving_only[0] == 2560
    unset = _only(**DEEPSEEK, dp=8, enable_dp_attention=True)
    assert unset.buckets[-1] == 32768 and unset.serving_only == ()


def test_no_keys_are_planned_of_a_flashinfer_that_writes_others() -> None:
    assert [_ops(**CUTLASS, flashinfer_version=version) for version in ("0.6.14", "0.7.1")] == [(), ()]


def test_keys_are_what_the_parser_of_cache_files_reads(tmp_path: Path) -> None:
    everything = [
        *_ops(**CUTLASS, tp=4),
        *_ops(**DEEPSEEK),
        *_ops(model_path="gpt-oss-20b", arch="sm100"),
        *_ops(model_path=_in_modelopt(tmp_path, "Llama-3.1-8B", "FP8")),
        *_ops(model_path="demo-moe", arch="cpu"),
    ]
    for op in everything:
        for entry in op.entries:
            parts = parse_key(entry.key)
            assert parts is not None, entry.key
            assert (parts.op, parts.runner, parts.bucket) == (op.op, op.runner, entry.bucket)


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        (CUTLASS, "tunes 2 ops, 42 entries in 1 file"),
        ({"model_path": "Qwen3-30B-A3B"}, "tunes nothing: SGLang tunes no experts of MoE backend auto"),
        ({**CUTLASS, "arch": "sm89"}, "tunes nothing: SGLang tunes from compute capability 9.0 on"),
        ({**CUTLASS, "disable_flashinfer_autotune": True}, "tunes nothing: --disable-flashinfer-autotune"),
        # the gate asks for the backend and not for experts: the server's autotune finds nothing to do
        (
            {"model_path": "Llama-3.1-8B", "moe_runner_backend": "flashinfer_cutlass"},
            "tunes nothing: the server's autotuner runs, and no layer of this model uses it",
        ),
        (
            {**CUTLASS, "flashinfer_autotune_skip_ops": [f"trtllm::fused_moe::gemm{n}" for n in (1, 2)]},
            "tunes nothing: the server's autotuner runs, and no layer of this model uses it but for trtllm::",
        ),
    ],
)
def test_the_verdict_says_what_is_tuned(flags: dict[str, Any], verdict: str) -> None:
    assert _verdict(**flags).startswith(verdict)


def test_experts_whose_lookups_are_not_known_are_named(tmp_path: Path) -> None:
    model = _in_modelopt(tmp_path, "Qwen3-30B-A3B", "FP8")
    why = _verdict(model_path=model, arch="sm100", moe_runner_backend="flashinfer_trtllm")
    assert why.startswith("tunes the experts, which cannot be planned: the lookups of flashinfer_trtllm with")
