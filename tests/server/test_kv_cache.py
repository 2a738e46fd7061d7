"""The KV cache's dtype where nobody chose it: what a checkpoint's own scales say, by method and release."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from tests.server import asking
from tests.server.servers import B200, GLM5, H100, LLAMA, PRO, QWEN, R1, V32, VERSIONS, changed_in, server

SCHEME = {"type": "float", "num_bits": 8, "dynamic": False}
STATIC = {**SCHEME, "strategy": "tensor"}
V4 = {**LLAMA, "architectures": ["DeepseekV4ForCausalLM"]}


def _quantized(**section: Any) -> dict[str, Any]:
    return {**LLAMA, "quantization_config": section}


def _modelopt(algorithm: str, **section: Any) -> dict[str, Any]:
    return _quantized(quant_method="modelopt", quant_algo=algorithm, **section)


def _packed(scheme: Any) -> dict[str, Any]:
    return _quantized(quant_method="compressed-tensors", kv_cache_scheme=scheme)


def _by_release(model: dict[str, Any], gpu: str = H100, **flags: Any) -> dict[str, str]:
    def dtype(version: str) -> str:
        try:
            return server(model, gpu, version, moe_runner_backend="triton", **flags).kv_cache_dtype
        except ConfigError:
            return "refused"

    return changed_in([dtype(version) for version in VERSIONS])


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (LLAMA, {"12": "bfloat16"}),
        ({**LLAMA, "dtype": "float32"}, {"12": "float16"}),
        (_modelopt("FP8", kv_cache_scheme=SCHEME), {"12": "fp8_e4m3"}),
        (_modelopt("FP8", kv_cache_scheme={**SCHEME, "num_bits": 4}), {"12": "bfloat16"}),
        (_modelopt("FP8", kv_cache_scheme={**SCHEME, "type": "int"}), {"12": "bfloat16"}),
        (_modelopt("FP8", kv_cache_scheme="FP8"), {"12": "bfloat16", "15": "bfloat16"}),
        (_modelopt("FP8", kv_cache_quant_algo="FP8"), {"12": "bfloat16", "15": "fp8_e4m3"}),
        (_modelopt("FP8", kv_cache_quant_algo="NVFP4"), {"12": "bfloat16"}),
        (_modelopt("FP8", kv_cache_quant_algo=8), {"12": "bfloat16"}),
        (_modelopt("NVFP4", kv_cache_scheme=SCHEME), {"12": "fp8_e4m3"}),
        (_modelopt("NVFP4", kv_cache_scheme=" float8 "), {"12": "fp8_e4m3"}),
        (_modelopt("NVFP4", kv_cache_scheme="NVFP4"), {"12": "bfloat16"}),
        (_modelopt("NVFP4", kv_cache_quant_algo="fp8"), {"12": "bfloat16", "15": "fp8_e4m3"}),
        (_quantized(quant_method="fp8", kv_cache_quant_algo="FP8"), {"12": "bfloat16", "18": "fp8_e4m3"}),
        (_quantized(quant_method="mxfp8", kv_cache_quant_algo="FP8"), {"12": "bfloat16", "18": "fp8_e4m3"}),
        (_packed(STATIC), {"12": "bfloat16", "19": "fp8_e4m3"}),
        (_packed({**STATIC, "dynamic": True}), {"12": "bfloat16"}),
        (_packed({**STATIC, "symmetric": False}), {"12": "bfloat16"}),
        (_packed({**STATIC, "strategy": "channel"}), {"12": "bfloat16"}),
        (_packed({**STATIC, "num_bits": 4}), {"12": "bfloat16"}),
        (_packed(None), {"12": "bfloat16"}),
        (_quantized(quant_method="awq", kv_cache_scheme=SCHEME), {"12": "bfloat16"}),
    ],
)
def test_what_the_weights_say(model: dict[str, Any], found: dict[str, str]) -> None:
    trimmed = {name: dtype for name, dtype in found.items() if name == "12" or dtype != found["12"]}
    assert _by_release(model, B200) == trimmed


def test_modelopts_own_file_says_it_too() -> None:
    def nested(**section: Any) -> str:
        file = {"quantization": {"quant_algo": "FP8", **section}}
        return server(LLAMA, B200, quant_file=file).kv_cache_dtype

    assert nested(kv_cache_quant_algo="FP8") == "fp8_e4m3"
    assert nested() == "bfloat16" == nested(kv_cache_quant_algo=None)


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "found"),
    [
        (V32, H100, "auto", {"12": "bfloat16"}),
        (V32, B200, "auto", {"12": "fp8_e4m3"}),
        (V32, PRO, "auto", {"12": "fp8_e4m3"}),
        (GLM5, H100, "fp8_e4m3", {"12": "fp8_e4m3"}),
        (GLM5, B200, "bf16", {"12": "bfloat16"}),
        (GLM5, H100, "fp8_e5m2", {"12": "refused"}),
        ({**V32, "learnable_sink": True}, B200, "auto", {"12": "fp8_e4m3", "20": "bfloat16"}),
        (R1, H100, "auto", {"12": "bfloat16"}),
        (V4, H100, "auto", {"12": "fp8_e4m3"}),
        (V4, H100, "bf16", {"12": "refused"}),
        (V4, H100, "bfloat16", {"12": "refused", "14": "bfloat16"}),
        (QWEN, H100, "bf16", {"12": "bf16"}),
        (QWEN, H100, "fp8_e5m2", {"12": "fp8_e5m2"}),
        (_modelopt("FP8", kv_cache_scheme=SCHEME), H100, "bfloat16", {"12": "bfloat16"}),
    ],
)
def test_sparse_attention_and_what_was_asked_for(
    model: dict[str, Any], gpu: str, asked: str, found: dict[str, str]
) -> None:
    assert _by_release(model, gpu, kv_cache_dtype=asked) == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [("fp8_e5m2", "fp8_e5m2"), ("bf16", "bfloat16"), ("auto", "bfloat16"), (None, "fp8_e4m3")],
)
def test_a_draft_has_a_cache_of_its_own_dtype_where_that_is_told(asked: str | None, found: str) -> None:
    drafted = asking.server(
        *("glm4", 23, "H200"),
        kv_cache_dtype="fp8_e4m3",
        speculative_algorithm="EAGLE",
        speculative_draft_kv_cache_dtype=asked,
    )
    kept = drafted.runtime.speculative
    assert kept is not None and kept.kv_cache_dtype == (None if asked is None else found)
    assert drafted.as_draft().runtime.kv_cache_dtype == found
    assert drafted.runtime.kv_cache_dtype == "fp8_e4m3"


def test_a_rank_goes_by_the_dtypes_full_name() -> None:
    assert server(QWEN, H100, kv_cache_dtype="bf16").runtime.kv_cache_dtype == "bfloat16"
