"""The key that the newest SGLang looks under."""

from dataclasses import replace

from runtime.server.cache_key import KeyInputs, cache_key, key_parts, named_parts
from tests.sgl_tune.planning import plan

QWEN = KeyInputs(
    model_path="Qwen/Qwen3-30B-A3B",
    dtype="bfloat16",
    quantization=None,
    moe_runner_backend="flashinfer_cutlass",
    tp=1,
    pp=1,
    attn_dp=1,
    moe_ep=1,
    config_class="Qwen3MoeConfig",
)


def test_the_golden_key_comes_out_of_the_command_line() -> None:
    flags = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
    data = plan(*flags, "--gpu", "sm90")
    assert data["key"] == "8e60e63bda689ee5" == cache_key(key_parts(QWEN))
    assert data["key_parts"][:9] == [
        *("Qwen/Qwen3-30B-A3B", "torch.bfloat16", "None", "flashinfer_cutlass"),
        *("1", "1", "1", "1", "Qwen3MoeConfig"),
    ]


def test_parts_stand_in_the_order_of_the_server() -> None:
    draft = replace(QWEN, is_draft=True, draft_quantization="fp8", skip_ops=("b", "a"))
    assert key_parts(draft)[9:] == (*("candidate_selection=v2_default", "skip_ops=a,b"), "draft_quant=fp8")


def test_each_part_is_told_by_its_name() -> None:
    inputs = KeyInputs("m", "half", "fp8", "triton", 8, 2, 4, 16, "AConfig", ("op",), is_draft=True)
    assert named_parts(key_parts(inputs)) == {
        "model path": "m",
        "dtype": "torch.half",
        "quantization": "fp8",
        "MoE backend": "triton",
        "tp": "8",
        "pp": "2",
        "attention dp": "4",
        "ep": "16",
        "config class": "AConfig",
        "candidate_selection": "v2_default",
        "skip_ops": "op",
        "draft_quant": "None",
    }
