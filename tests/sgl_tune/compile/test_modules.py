"""Which modules a server loads is read from its record, and FlashInfer makes them by these very calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.record.events import record_of
from runtime.record.record import NotARecord, Record
from sgl_tune.compile.goal import Module, modules_of
from tests.record.test_record import ASKED, ENDED, READY
from tests.sgl_tune.running import run_here

MOE = ("--model", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", "--gpu", "h200")
NORM = Module("norm", "norm:gen_norm_module")
MAKERS = """
import json, os, sys, types
sys.path.insert(0, sys.argv[1])
from runtime.flashinfer.inside import makers
from runtime.ghost.inside import hooks, stream
hooks.install()
stream.open_stream(1)
import torch
from flashinfer.jit import gen_single_prefill_module
from flashinfer.jit.norm import gen_norm_module
half = torch.bfloat16
gen_norm_module()
gen_single_prefill_module("fa2", half, half, half, 128, 128, 0, False, False, False)
"""


def loaded(name: str, library: str = "flashinfer") -> dict[str, Any]:
    return {"event": "module", "library": library, "name": name, "path": "/p", "state": "stub", "digest": ""}


def made(name: str, maker: str, *arguments: Any) -> dict[str, Any]:
    return {"event": "maker", "name": name, "maker": maker, "arguments": list(arguments)}


def start(*events: dict[str, Any], **arguments: Any) -> Record:
    return record_of(ASKED, [{"event": "asked", "arguments": arguments}, *events, READY, ENDED])


def test_what_a_start_loads_is_known_by_how_it_was_made() -> None:
    experts = made("fused_moe_90", "fused_moe:gen_cutlass_fused_moe_sm90_module", False)
    record = start(experts, loaded("fused_moe_90"), loaded("odd"), loaded("sgl_kernel_jit_x", "sglang"))
    found = modules_of([record, record])
    assert found.known == (Module("fused_moe_90", experts["maker"], (False,)),)
    assert found.unknown == ("odd",) and Record.from_json(record.to_json()) == record


def test_what_the_first_requests_load_is_there_too() -> None:
    assert [one.name for one in modules_of([start(sampling_backend="flashinfer")]).known] == ["sampling"]
    assert modules_of([start(sampling_backend="pytorch")]).known == ()


@pytest.mark.parametrize("maker", ["os:system", "norm:os.system", "norm", "a/b:gen_x", ":gen_x"])
def test_a_record_names_makers_of_flashinfers_alone(maker: str) -> None:
    data = json.loads(start(loaded("norm")).to_json())
    data["modules"][0]["maker"] = maker
    with pytest.raises(NotARecord, match="made by FlashInfer"):
        Record.from_json(json.dumps(data))


@pytest.mark.parametrize("flag", ["--compile-only", "--format=kubernetes"])
def test_flags_of_everything_are_refused_without_it(flag: str) -> None:
    assert run_here("warm", "--dry-run", flag, *MOE).ends(2, "add --everything")


def test_without_a_server_nobody_knows_what_a_start_compiles() -> None:
    ran = run_here("warm", "--everything", "--dry-run", *MOE)
    assert ran.code == 1 and "sgl-tune server add" in ran.err and "own start loads" in ran.err


@pytest.mark.parametrize("flag", [("--server", "core"), ("--gpu", "sm90"), ("--device", "cpu")])
def test_what_asks_no_server_does_not_go_with_everything(flag: tuple[str, ...]) -> None:
    assert run_here("warm", "--everything", "--dry-run", *MOE, *flag).ends(2, f"{flag[0]}", "asks no server")


def test_flashinfers_own_makers_are_told_with_their_arguments(tmp_path: Path) -> None:
    pytest.importorskip("flashinfer")
    settings = {"FLASHINFER_WORKSPACE_BASE": str(tmp_path), "FLASHINFER_CUDA_ARCH_LIST": "9.0"}
    root = Path(__file__).resolve().parents[3]
    command, variables = [sys.executable, "-c", MAKERS, str(root)], {**os.environ, **settings}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if '"maker"' in line]
    norm, prefill = told
    assert (norm["name"], norm["maker"], norm["arguments"]) == ("norm", "norm:gen_norm_module", [])
    assert prefill["maker"].endswith(":gen_single_prefill_module") and prefill["name"].startswith("single_")
    assert prefill["arguments"][:4] == ["fa2", "bfloat16", "bfloat16", "bfloat16"]
