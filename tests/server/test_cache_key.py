"""The key that each SGLang version looks under."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.server.cache_key import KeyInputs, cache_key, key_parts, named_parts
from runtime.server.errors import ConfigError
from runtime.server.releases import NEWEST, RELEASES, Release, release_named
from runtime.server.version_number import number
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
GOLDEN = {
    **dict.fromkeys(("0.5.12", "0.5.12.post1", "0.5.13", "0.5.14", "0.5.15", "0.5.16"), "d541e0754cde5c8a"),
    "0.5.17": "4aaede739ed1db5a",
    **dict.fromkeys(("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22"), "7ba625d72655aa9f"),
    "0.5.23": "8e60e63bda689ee5",
}


def _release(version: str) -> Release:
    return release_named(version).release


def _key(version: str, inputs: KeyInputs = QWEN) -> str:
    return cache_key(key_parts(_release(version), inputs))


@pytest.mark.parametrize(("version", "golden"), GOLDEN.items())
def test_golden_keys_come_out_of_the_command_line(version: str, golden: str) -> None:
    flags = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
    data = plan(*flags, "--sglang-version", version, "--arch", "sm90", "--flashinfer-version", "0.7.2")
    assert data["key"] == golden == _key(version)
    assert data["key_parts"][:9] == [
        *("Qwen/Qwen3-30B-A3B", "torch.bfloat16", "None", "flashinfer_cutlass"),
        *("1", "1", "1", "1", "Qwen3MoeConfig"),
    ]


@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.14"])
def test_an_early_draft_worker_shares_the_targets_key(version: str) -> None:
    assert _key(version, replace(QWEN, is_draft=True, draft_quantization="fp8")) == _key(version)


@pytest.mark.parametrize("version", ["0.5.15", "0.5.16", "0.5.17", "0.5.18", "0.5.22", "0.5.23"])
def test_a_draft_worker_says_its_quantization_last(version: str) -> None:
    parts = key_parts(_release(version), replace(QWEN, is_draft=True, draft_quantization=None))
    assert parts[-1] == "draft_quant=None"
    assert parts[:-1] == key_parts(_release(version), QWEN)


def test_parts_stand_in_the_order_of_the_server() -> None:
    draft = replace(QWEN, is_draft=True, draft_quantization="fp8", skip_ops=("b", "a"))
    assert key_parts(_release("0.5.23"), draft)[9:] == (
        *("candidate_selection=v2_default", "skip_ops=a,b"),
        "draft_quant=fp8",
    )


def test_each_part_is_told_by_its_name() -> None:
    inputs = KeyInputs("m", "half", "fp8", "triton", 8, 2, 4, 16, "AConfig", ("op",), is_draft=True)
    assert named_parts(key_parts(_release("0.5.23"), inputs)) == {
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


def test_skipped_ops_are_sorted_with_the_versions_own() -> None:
    parts = key_parts(_release("0.5.17"), replace(QWEN, skip_ops=("zz", "fp8_gemm")))
    assert parts[-1] == "skip_ops=fp8_gemm,mxfp8_gemm,zz"
    assert key_parts(_release("0.5.16"), replace(QWEN, skip_ops=("zz",))) == key_parts(
        _release("0.5.16"), QWEN
    )


@pytest.mark.parametrize("version", ["0.5.99", "0.6.0", "1.0", "0.5.99.dev3+g123"])
def test_a_newer_version_takes_the_newest_recipe_and_says_so(version: str) -> None:
    named = release_named(version)
    assert _key(version) == _key(NEWEST.version)
    assert named.release.version == version and version in (named.warning or "")


@pytest.mark.parametrize("version", ["0.5.11", "0.5.9", "0.4.6.post1"])
def test_a_version_without_cache_files_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"SGLang {version} keeps its autotune results in memory only"):
        _release(version)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'newest' is not a version"):
        _release("newest")


def test_a_post_release_is_the_release() -> None:
    assert _release("0.5.12.post1") == RELEASES[0]._replace(version="0.5.12.post1")


def test_releases_are_in_order_and_each_pins_a_flashinfer() -> None:
    numbers = [row.number for row in RELEASES]
    assert numbers == sorted(set(numbers)) and numbers[0] == (0, 5, 12)
    assert all(number(row.flashinfer) for row in RELEASES)
    assert _release("0.5.17").flashinfer == "0.6.15.post1"
    assert _release("0.5.21").flashinfer == "0.6.18"
    assert _release("0.5.23").flashinfer == "0.7.2"
