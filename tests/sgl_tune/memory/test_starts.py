"""What a prediction goes by, of what a server was asked and of its environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.errors import ConfigError
from runtime.server.pool_plan import kv_dtype_of
from runtime.server.sizing import kv_bytes_per_token
from sgl_tune.cli.out import Output
from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.memory.measure import measure
from sgl_tune.memory.start import Start, starts_of

TOLD = "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
A2A = {
    "model_path": "Qwen3-30B-A3B", "tp": 4, "dp": 4, "enable_dp_attention": True,
    "chunked_prefill_size": 32768, "moe_a2a_backend": "flashinfer",
    "moe_runner_backend": "flashinfer_cutlass",
}  # fmt: skip


def _start(environ: dict[str, str] | None = None, **flags: Any) -> Start:
    deployment = resolve_deployment(ServerFlags(**{"gpu": "h200", **flags}), environ=environ or {})
    return starts_of(deployment, "0")[0]


def _room(environ: dict[str, str] | None = None, **flags: Any) -> int | None:
    return _start(environ, **{**A2A, **flags}).runtime.a2a_max_tokens


@pytest.mark.parametrize("version", ["0.5.13", "0.5.23"])
def test_the_environment_says_how_many_tokens_a_workspace_holds(version: str) -> None:
    assert _room(sglang_version=version) == 8192 == 32768 / 4
    assert _room({TOLD: "9000"}, sglang_version=version) == 9000
    assert _room({TOLD: "many"}, sglang_version="0.5.21") == 8192


def test_0_5_12_counted_them_for_all_ranks_as_one() -> None:
    assert _room(sglang_version="0.5.12") == 1024 * 4
    assert _room({TOLD: "4096"}, sglang_version="0.5.12") == 4096 * 4


def test_it_is_flashinfers_alone() -> None:
    deepep = {"moe_a2a_backend": "deepep", "moe_runner_backend": "auto"}
    assert _room({TOLD: "9000"}, **deepep) == _room(**deepep) == 8192


DEEPEP: dict[str, Any] = {"tp": 8, "dp": 8, "enable_dp_attention": True, "moe_a2a_backend": "deepep"}


@pytest.mark.parametrize(
    ("model", "flags", "runner"),
    [
        ("DeepSeek-V3", {}, None),
        ("GLM-5.1-FP8", {"sglang_version": "0.5.12"}, None),
        ("Qwen3-235B-A22B", {"moe_runner_backend": "deep_gemm"}, None),
        ("Qwen3-235B-A22B", {}, "auto"),
        ("DeepSeek-V3", {"moe_runner_backend": "triton"}, "triton"),
    ],
)
def test_behind_deepep_what_is_not_deep_gemm_is_named(
    model: str, flags: dict[str, Any], runner: str | None
) -> None:
    start = _start(model_path=model, **DEEPEP, **flags)
    assert (start.runtime.moe_a2a_backend, start.runtime.moe_runner_backend) == ("deepep", "deep_gemm")
    note = f"predicted with deep_gemm's buffers in place of {runner}'s, which are not known"
    assert start.notes == ((note,) if runner else ())


def test_the_environment_says_how_many_tokens_deepep_dispatches() -> None:
    told = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    for environ, tokens in (({}, 128), ({told: "256"}, 256), ({told: "many"}, 128)):
        deepep = _start(environ, model_path="DeepSeek-V3", **DEEPEP).runtime.deepep
        assert deepep is not None and deepep.tokens == tokens


def test_a_config_of_deepeps_is_read_where_it_lies(tmp_path: Path) -> None:
    wide = {"num_sms": 96, "num_max_nvl_chunked_recv_tokens": 512}
    file = tmp_path / "tuned.json"
    start = _start(model_path="DeepSeek-V3", **DEEPEP)
    elsewhere = start.asking(others={"deepep_config": str(file)})
    assert "DeepEP's own configs in place of those of --deepep-config" in elsewhere.notes[0]
    file.write_text(json.dumps({"normal_dispatch": wide, "normal_combine": wide}))
    here = start.asking(others={"deepep_config": str(file)})
    assert here.notes == () and here.runtime.deepep is not None
    assert here.runtime.deepep.buffers(8, 7168, 256).nvlink > 3 << 30
    file.write_text("num_sms: 96")
    with pytest.raises(ConfigError, match="is no JSON"):
        start.asking(others={"deepep_config": str(file)})


def test_other_all_to_alls_keep_their_stand_in() -> None:
    start = _start(model_path="DeepSeek-V3", **{**DEEPEP, "moe_a2a_backend": "mooncake"})
    assert start.runtime.moe_a2a_backend == "flashinfer"
    assert start.notes == ("predicted with flashinfer's all-to-all workspace in place of mooncake's",)


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (DEEPEP, "--moe-a2a-backend deepep"),
        ({"moe_runner_backend": "deep_gemm"}, "--moe-runner-backend deep_gemm"),
    ],
)
def test_what_is_only_predicted_is_not_measured(flags: dict[str, Any], flag: str, tmp_path: Path) -> None:
    start = _start(model_path="DeepSeek-V3", **flags)
    with pytest.raises(UsageError, match=f"{flag} cannot be measured") as refused:
        measure(start, tmp_path / "run.jsonl", Output())
    assert refused.value.remedy == "without --measure it is predicted"
    assert not list(tmp_path.iterdir())


def test_no_stage_is_without_layers() -> None:
    _start(model_path="Qwen3-30B-A3B", pp=48)
    with pytest.raises(UsageError, match="--pp 49: a stage needs a layer, and the model has 48"):
        _start(model_path="Qwen3-30B-A3B", pp=49)


@pytest.mark.parametrize("is_own_file", [True, False])
def test_a_cache_that_the_checkpoint_declares_in_fp8_takes_half(is_own_file: bool, tmp_path: Path) -> None:
    """As nvidia's Llama-3.1-8B-Instruct-FP8 does: 32 layers of 8 heads of 128, keys and values."""
    config = next(dict(preset.config) for preset in presets() if preset.name == "Llama-3.1-8B")
    nested = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"}
    flat = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme, "ignore": ["lm_head"]}
    if is_own_file:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": nested}))
    else:
        config["quantization_config"] = flat

    def token(**flags: Any) -> int:
        (tmp_path / "config.json").write_text(json.dumps(config))
        start = _start(model_path=str(tmp_path), **flags)
        kv_dtype = kv_dtype_of(start.runtime)
        return kv_bytes_per_token(start.model, start.parallel, kv_dtype, range(start.model.num_layers))

    assert token() == 32 * 2 * 8 * 128
    assert token(kv_cache_dtype="bf16") == 2 * token()
