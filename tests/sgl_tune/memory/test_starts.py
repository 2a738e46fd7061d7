"""What a prediction goes by, of what a server was asked."""

from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.measure import measure
from sgl_tune.memory.core.start import Start, starts_of
from tests.sgl_tune.planning import deployment

A2A = {
    "model_path": "Qwen3-30B-A3B", "tp": 4, "dp": 4, "enable_dp_attention": True,
    "chunked_prefill_size": 32768, "moe_a2a_backend": "flashinfer",
    "moe_runner_backend": "flashinfer_cutlass",
}  # fmt: skip


def _start(what_if: str | None = None, **flags: Any) -> Start:
    behaviours = (what_if,) if what_if else ()
    return starts_of(deployment(**{"gpu": "h200", "arch": None, **flags}), "0", behaviours)[0]


def test_a_workspace_holds_a_chunk_or_the_most_requests_that_there_can_be() -> None:
    assert _start(**A2A).runtime.kernels.a2a_max_tokens == 8192 == 32768 / 4
    assert _start(**{**A2A, "chunked_prefill_size": 2048}).runtime.kernels.a2a_max_tokens == 4096
    by_requests = _start("dispatcher-by-max-running-requests", **A2A, max_running_requests=64)
    assert by_requests.runtime.kernels.a2a_max_tokens == 64 / 4


def test_kernels_without_known_workspaces_have_a_stand_in_that_is_told() -> None:
    start = _start(model_path="gpt-oss-20b", moe_runner_backend="flashinfer_mxfp4")
    assert start.runtime.kernels.moe == "triton"
    assert start.notes == ("triton's workspaces stand for those of flashinfer_mxfp4, which are not known",)


def test_what_is_only_predicted_is_not_measured(tmp_path: Path) -> None:
    start = _start(model_path="DeepSeek-V3", moe_runner_backend="deep_gemm")
    with pytest.raises(UsageError, match="--moe-runner-backend deep_gemm cannot be measured") as refused:
        measure([start], tmp_path / "run.jsonl", Output())
    assert refused.value.remedy == "leave out --measure to predict it"
    assert not list(tmp_path.iterdir())


def test_no_stage_is_without_layers() -> None:
    _start(model_path="Qwen3-30B-A3B", pp=48)
    with pytest.raises(UsageError, match="--pp 49: a stage needs a layer, and the model has 48"):
        _start(model_path="Qwen3-30B-A3B", pp=49)
