"""DeepSeek-V4's start as mem-report tells it: up to its first forward, and by name what is behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.units import MIB
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import starts_of
from sgl_tune.memory.table import verdict
from tests.oracle.deepseek_v4 import FLASH, folder_of
from tests.oracle.v4_weights import read
from tests.sgl_tune.running import run
from tests.sgl_tune.schemas import schema_faults

_TABLE = 256 * MIB + 256 * 64 * 4  # of a million positions, and those that it reaches beyond its context
_SMALL = {**FLASH, "num_hidden_layers": 4, "n_routed_experts": 8, "num_hash_layers": 0}
_SMALL |= {"compress_ratios": [0, 4, 128, 4, 0]}
_EAGLE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_num_draft_tokens": 2}


def _report(folder: Path, config: dict[str, Any] = _SMALL, **flags: Any) -> MemoryReport:
    target = {"gpu": "h200", "tp": 8, "sglang_version": "0.5.23", "model_path": folder_of(config, folder)}
    deployment = resolve_deployment(ServerFlags(**{**target, **flags}), environ={})
    return predict(starts_of(deployment, "0")[0])


_BEFORE = ["communicator", "weights", "kv pool", "attention backend"]


def test_it_ends_with_the_first_forward_and_names_what_is_behind(tmp_path: Path) -> None:
    report = _report(tmp_path)
    assert [phase.name for phase in report.phases] == [*_BEFORE, "eager buffers"]
    assert report.verdict == "partial"
    behind = ("autotune", "decode graphs", "ready")
    assert report.not_predicted == behind
    text, style = verdict(report)
    assert text.startswith("PREDICTED UP TO eager buffers, which leaves ") and style == "yellow"
    assert text.endswith(f"for what is not: {', '.join(behind)}")


def test_before_0_5_14_it_holds_no_inputs_ahead_of_its_forwards(tmp_path: Path) -> None:
    report = _report(tmp_path, sglang_version="0.5.13", moe_runner_backend="flashinfer_mxfp4")
    assert [phase.name for phase in report.phases] == _BEFORE
    assert "eager buffers" not in report.not_predicted


def test_without_a_forward_it_is_predicted_until_it_is_ready(tmp_path: Path) -> None:
    nothing = {"disable_cuda_graph": True, "disable_flashinfer_autotune": True}
    report = _report(tmp_path, **nothing)
    assert [phase.name for phase in report.phases] == [*_BEFORE, "eager buffers", "ready"]
    assert report.verdict == "fits" and not report.not_predicted


def test_its_weights_are_sglangs_with_the_angles_that_two_kinds_of_layers_turn_by(tmp_path: Path) -> None:
    """Those of its own kernels, and since 0.5.13 those of another beside them."""
    case = {"gpu": "H200", "config": "flash", "tp": 8, "ep": 1, "dp": 1}
    (held,) = (held for told, held in read() if told == case)
    taken = {
        release: _weights(
            _report(tmp_path, FLASH, sglang_version=release, moe_runner_backend="flashinfer_mxfp4")
        )
        for release in ("0.5.12", "0.5.13", "0.5.23")
    }
    assert taken["0.5.13"] - taken["0.5.12"] == 2 * _TABLE
    assert 0 <= taken["0.5.23"] - held - 4 * _TABLE < 64 * MIB  # what its experts' layout adds


def _weights(report: MemoryReport) -> int:
    phase = report.phase("weights")
    assert phase is not None
    return phase.persistent_bytes


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (_EAGLE | {"speculative_eagle_topk": 1}, "--speculative-algorithm EAGLE: how large"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode decode: how large"),
        (
            {"kv_cache_dtype": "bfloat16"},
            "--kv-cache-dtype bfloat16: SGLang's pool of compressed keys is of fp8_e4m3 alone",
        ),
    ],
)
def test_what_is_not_known_of_its_pools_is_refused_by_name(
    tmp_path: Path, flags: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError) as refused:
        _report(tmp_path, **flags)
    assert named in str(refused.value)


@pytest.mark.parametrize("flag", ["--enable-hisparse", "--enable-deepseek-v4-fp4-indexer"])
def test_so_are_flags_that_only_change_its_pools(tmp_path: Path, flag: str) -> None:
    command = ("--", "python", "-m", "sglang.launch_server", "--model-path", folder_of(_SMALL, tmp_path))
    more = ("--disable-radix-cache",) if flag == "--enable-hisparse" else ()
    ran = run("mem-report", "--gpu", "b200", *command, flag, *more)
    assert ran.code != 0 and f"{flag}: how large DeepSeek-V4's pools are then" in ran.err


def test_on_the_command_line(tmp_path: Path) -> None:
    line = ("mem-report", "--model", folder_of(_SMALL, tmp_path), "--gpu", "h200", "--tp", "8")
    ran = run(*line, "--sweep", "mem-fraction-static=0.7:0.8:0.1", "--format", "json")
    told = json.loads(ran.out)
    assert ran.code == 1 and told["verdict"] == "partial" and not schema_faults("mem-report", told)
    tokens = [step["sizes"]["kv_tokens"] for step in told["sweep"].values()]
    assert 0 < tokens[0] < tokens[1]
    fit = run(*line, "--fit")
    assert fit.code == 2 and "what this model's forwards take is not known" in fit.err
