"""What verify takes each op's lookups to ask for, against the configurations in FlashInfer's own code."""

import ast
import inspect

import flashinfer
import pytest
from flashinfer.autotuner import AutoTuner, TuningConfig
from flashinfer.fused_moe import core
from flashinfer.gemm import gemm_base

from runtime.flashinfer.versions import COLD, HOT, flashinfer_of
from sgl_tune.verify.entries import OPS

TRTLLM_OPS = [op for op in OPS if op.startswith("flashinfer::trtllm_")]
FUNCTIONS = [one for one in ast.walk(ast.parse(inspect.getsource(core))) if isinstance(one, ast.FunctionDef)]


def _config_of(op: str) -> TuningConfig:
    """From the options that the op's function passes on, read off its source: to call it takes a GPU."""
    owners = [function for function in FUNCTIONS if _asks_for(function, op)]
    function = min(owners, key=lambda function: len(ast.unparse(function)))
    (options,) = [
        {
            keyword.arg: keyword.value.value
            for keyword in call.keywords
            if isinstance(keyword.value, ast.Constant)
        }
        for call in _calls(function)
        if ast.unparse(call.func).endswith("_make_tuning_config")
    ]
    return TuningConfig(
        use_cuda_graph=options.get("use_cuda_graph", False),
        use_cold_l2_cache=options.get("use_cold_l2_cache", False),
    )


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


def _asks_for(function: ast.FunctionDef, op: str) -> bool:
    return any(
        ast.unparse(call.func).endswith("choose_one") and op in [getattr(a, "value", None) for a in call.args]
        for call in _calls(function)
    )


@pytest.mark.parametrize("op", TRTLLM_OPS)
def test_a_trtllm_op_is_looked_up_under_the_policy_we_say(op: str) -> None:
    assert AutoTuner._profiling_policy(_config_of(op)) == OPS[op].policy == COLD


def test_an_entry_without_a_policy_counts_as_hot_and_misses_for_them() -> None:
    config = _config_of(TRTLLM_OPS[0])
    assert AutoTuner._default_profiling_policy(config) != AutoTuner._profiling_policy(config)


@pytest.mark.parametrize("config", [gemm_base._FP8_GEMM_SM100_TUNING_CONFIG, TuningConfig()])
def test_the_hot_ops_are_looked_up_as_their_entries_without_a_policy(config: TuningConfig) -> None:
    assert AutoTuner._profiling_policy(config) == AutoTuner._default_profiling_policy(config) == HOT


def test_the_installed_version_compares_policies_and_writes_extras() -> None:
    here = flashinfer_of(flashinfer.__version__)
    assert here.has_extras and here.keeps_policies
    assert "extras" in inspect.signature(AutoTuner._get_cache_key).parameters
