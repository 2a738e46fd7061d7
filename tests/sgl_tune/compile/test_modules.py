"""Which modules a deployment loads, and whether FlashInfer names them so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from runtime.server.module import Module
from tests.memory.checkpoints import checkpoints
from tests.sgl_tune.modelopt import in_modelopt
from tests.sgl_tune.planning import HOPPER, TARGET, plan
from tests.sgl_tune.running import run

MOE = ("--model", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
ASK = """
import json, sys
from sgl_tune.compile.generate import _argument
from importlib import import_module
told = {}
for one in json.loads(sys.argv[1]):
    place, _, name = one["maker"].partition(":")
    maker = getattr(import_module("flashinfer.jit." + place), name)
    told[one["name"]] = maker(*map(_argument, one["arguments"])).name
print(json.dumps(told))
"""


def asked(*arguments: object) -> dict[str, list[str]]:
    told = plan("--everything", "--compile-only", *arguments)["everything"]
    return {"modules": [one["name"] for one in told["modules"]], "unknown": told["unknown"]}


def test_a_plain_moe_on_hopper_is_known_whole() -> None:
    assert asked(*MOE, *HOPPER) == {
        "modules": ["norm", "sampling", "fused_moe_90", "trtllm_utils"],
        "unknown": [],
    }


def test_norms_of_transformers_layers_are_another_kernels(tmp_path: Path) -> None:
    (smollm3,) = (one for one in checkpoints() if one.name == "a/smollm3-3b-by-its-card")
    (tmp_path / "config.json").write_text(json.dumps(smollm3.config))
    assert asked("--model", tmp_path, *HOPPER) == {"modules": ["sampling"], "unknown": []}


@pytest.mark.parametrize(
    ("flags", "unknown"),
    [
        (("--attention-backend", "trtllm_mha", "--arch", "sm120"), "attention by trtllm_mha"),
        (("--attention-backend", "trtllm_mha", "--arch", "sm100"), "the cubins that fmha_gen downloads"),
        (
            ("--model", in_modelopt("Qwen3-30B-A3B", "FP8"), "--arch", "sm90"),
            "layers quantized by modelopt_fp8",
        ),
        (("--gpu", "H20"), "experts by flashinfer_cutlass on an H20"),
        (("--speculative-algorithm", "NGRAM", "--arch", "sm90"), "speculation by NGRAM"),
    ],
)
def test_what_nobody_read_is_named(flags: tuple[str, ...], unknown: str) -> None:
    assert any(one.startswith(unknown) for one in asked(*MOE, *TARGET, *flags)["unknown"])


_PREFILL = (
    "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_{}_dtype_o_bf16_dtype_idx_i32_"
    "head_dim_qk_128_head_dim_vo_128_posenc_0_use_swa_False_use_logits_cap_False_f16qk_False"
)
_FP8_CACHE = ("--attention-backend", "flashinfer", "--kv-cache-dtype", "fp8_e4m3")


@pytest.mark.parametrize("tp", [1, 16])
def test_an_fp8_cache_is_read_by_paged_wrappers_alone(tp: int) -> None:
    """On tensor cores whatever shares a head: no module of decoding's."""
    told = asked(*MOE, *HOPPER, *_FP8_CACHE, "--tp", tp)
    batches = [name for name in told["modules"] if name.startswith("batch_")]
    assert batches == [f"{_PREFILL.format('e4m3')}_kv_stride_equal", f"{_PREFILL.format('bf16')}_sm90"]
    assert not any("attention" in one for one in told["unknown"])


def test_the_all_reduce_of_norms_is_known_on_hopper() -> None:
    told = asked(*MOE, *HOPPER, "--tp", 8)
    assert "trtllm_comm" in told["modules"] and not told["unknown"]
    assert "trtllm_comm" not in asked(*MOE, *HOPPER)["modules"]


@pytest.mark.parametrize(
    "flags",
    [
        (*TARGET, "--arch", "sm100", "--tp", 8),
        (*HOPPER, "--", *["sglang", "serve", "--tp", "8", "--flashinfer-allreduce-fusion-backend", "mnnvl"]),
    ],
)
def test_another_than_trtllms_is_named(flags: tuple[object, ...]) -> None:
    flags = (*flags, "--model-path", MOE[1]) if "--" in flags else (*MOE, *flags)
    told = asked(*flags)
    assert "trtllm_comm" not in told["modules"]
    assert any(one.startswith("the all-reduce that is fused with norms on") for one in told["unknown"])


_FP8_WEIGHTS = ("--model", "deepseek-ai/DeepSeek-V3")


def test_fp8_in_blocks_is_no_work_of_flashinfers_on_hopper() -> None:
    assert not _quantized(*_FP8_WEIGHTS, *HOPPER)
    assert _quantized(*_FP8_WEIGHTS, *TARGET, "--arch", "sm100")
    assert _quantized(*HOPPER, "--model", "Qwen/Qwen3-30B-A3B", "--quantization", "fp8")


def test_fp8_by_a_kernel_of_flashinfers_is() -> None:
    command = ("--", "sglang", "serve", "--fp8-gemm-backend", "flashinfer_deepgemm")
    assert _quantized(*HOPPER, *command, *_FP8_WEIGHTS)


def _quantized(*arguments: object) -> bool:
    return any(one.startswith("layers quantized by fp8") for one in asked(*arguments)["unknown"])


def test_a_module_that_the_deployment_does_not_load_is_refused() -> None:
    ran = run("warm", "--everything", "--dry-run", "--module", "nrm", *MOE, *HOPPER)
    assert ran.code == 2 and "--module nrm" in ran.err and "norm, sampling" in ran.err


@pytest.mark.parametrize("flag", ["--compile-only", "--module=norm", "--jobs=2", "--format=kubernetes"])
def test_flags_of_everything_are_refused_without_it(flag: str) -> None:
    ran = run("warm", "--dry-run", flag, *MOE, *HOPPER)
    assert ran.code == 2 and "add --everything" in ran.err


def test_everything_is_not_done_once_for_each_process_of_a_launcher() -> None:
    launched = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    ran = run("warm", "--everything", "--dry-run", *MOE, *HOPPER, **launched)
    assert ran.code == 2 and "run it by itself" in ran.err


def test_flashinfer_names_the_modules_so(tmp_path: Path) -> None:
    pytest.importorskip("flashinfer")
    known = [*_known(*MOE, *HOPPER), *_known(*MOE, *HOPPER, "--attention-backend", "flashinfer")]
    known += _known(*MOE, *HOPPER, "--attention-backend", "flashinfer", "--tp", 16)
    known += _known(*MOE, *HOPPER, *_FP8_CACHE, "--tp", 8)
    known += _known(*MOE, *HOPPER, *_FP8_CACHE[:3], "fp8_e5m2")
    known += _known(*_FP8_WEIGHTS, *HOPPER, "--attention-backend", "flashinfer")
    modules = {one.name: one for one in known}
    if shutil.which("nvcc") is None:  # it is asked for its release
        del modules["fused_moe_90"]
    assert len(modules) >= 6
    settings = {"FLASHINFER_WORKSPACE_BASE": str(tmp_path), "FLASHINFER_CUDA_ARCH_LIST": "9.0"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps([asdict(one) for one in modules.values()])],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {name: name for name in modules}


def _known(*arguments: object) -> list[Module]:
    """As they are planned, with what their makers are called with."""
    from sgl_tune.compile.modules import modules_for
    from sgl_tune.deployment.options import ServerFlags
    from sgl_tune.deployment.selection import select_deployments

    names = {"--model": "model_path"}
    given = {
        names.get(a, a[2:].replace("-", "_")): b for a, b in zip(arguments[::2], arguments[1::2], strict=True)
    }
    return list(modules_for(select_deployments(ServerFlags(**given), (), None)[0]).known)
