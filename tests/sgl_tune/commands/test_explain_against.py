"""`sgl-tune explain --against`: the caches that are there, flags of another release, refusals, terminals."""

from __future__ import annotations

import json
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.running import ROOT, run_anew, run_here, run_on_terminal

EXAMPLES = ROOT / "cache-examples/cache"
QWEN = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
OF_17 = (*QWEN, "--gpu", "h200", "--sglang-version", "0.5.17", "--flashinfer-version", "0.7.2")
GLM = ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8", "--gpu", "b200")
SERVER = ("--", "python", "-m", "sglang.launch_server", "--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8")


def compared(*arguments: object) -> dict[str, Any]:
    ran = run_here("explain", "--format", "json", *arguments)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)["against"]
    return found


def cache(*arguments: object, cache_dir: Path = EXAMPLES) -> dict[str, Any]:
    (found,) = compared(*OF_17, "--cache-dir", cache_dir, *arguments)["caches"]
    return dict(found)


def test_a_cache_survives_where_the_server_still_finds_its_files() -> None:
    found = cache("--against-gpu", "h200")
    assert (found["fate"], found["files"], found["loaded"], found["wanted"]) == ("survives", 1, 1, 1)


def test_a_cache_of_another_key_or_version_is_tuned_again_and_says_why() -> None:
    found = cache("--against", "0.5.18")
    assert (found["key"], found["fate"]) == ("4aaede739ed1db5a", "is tuned again")
    assert found["because"] == [
        "the key is 7ba625d72655aa9f then (another skip_ops)",
        "FlashInfer 0.6.17 looks into a folder of its own",
    ]
    assert cache("--against-gpu", "b200")["because"] == ["sm100 has a folder of its own"]


def test_a_cache_that_is_there_under_the_other_folder_is_a_successor() -> None:
    asked = (*QWEN, "--sglang-version", "0.5.17", "--flashinfer-version", "0.7.2", "--cache-dir", EXAMPLES)
    (found,) = compared(*asked, "--gpu", "b200", "--against-gpu", "h200")["caches"]
    assert (found["fate"], found["because"]) == ("has its successor", ["sm90 has a folder of its own"])
    assert (found["loaded"], found["wanted"]) == (1, 1)


def test_a_server_that_begins_to_tune_is_said_to_have_no_cache_yet() -> None:
    asked = (*QWEN, "--gpu", "h200", "--sglang-version", "0.5.12", "--cache-dir", EXAMPLES)
    (found,) = compared(*asked, "--against", "0.5.17")["caches"]
    assert (found["key"], found["fate"]) == ("4aaede739ed1db5a", "is not there")


def test_a_file_of_another_gpu_of_the_same_architecture_is_not_called_good() -> None:
    found = cache("--against-gpu", "h100")
    assert found["fate"] == "is tuned again" and found["loaded"] == 0
    assert "gpu: file NVIDIA H200, server NVIDIA H100" in found["because"][0]


def test_a_cache_that_nobody_will_ask_is_not_needed() -> None:
    assert cache("--against", "0.5.12")["fate"] == "is not needed", "0.5.12 does not tune flashinfer_cutlass"


def test_a_cache_that_is_not_there_says_so(tmp_path: Path) -> None:
    assert cache("--against", "0.5.23", cache_dir=tmp_path)["fate"] == "is not there"
    assert cache("--against", "0.5.23", cache_dir=tmp_path / "none")["fate"] == "is not there"


def test_a_cache_without_half_of_its_entries_survives_in_part(tmp_path: Path) -> None:
    folder = "flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a"
    shutil.copytree(EXAMPLES / folder, tmp_path / folder)
    file = tmp_path / folder / "rank_tp0_pp0_dp0.json"
    file.write_text(file.read_text().replace("fused_moe::gemm2", "fused_moe::other"))
    assert cache("--against-gpu", "h200", cache_dir=tmp_path)["fate"] == "survives in part"


def test_a_gate_that_opens_for_another_reason_says_both() -> None:
    asked = ("--gpu", "b200", "--sglang-version", "0.5.23")
    server = ("--", "python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-30B-A3B")
    found = compared(*asked, "--against-gpu", "a100 80gb", *server, "--disable-flashinfer-autotune")
    assert "tunes" not in {one["field"] for one in found["differences"]}, "it is off on both"
    found = compared(*asked, "--against-gpu", "l40s", *server, "--moe-runner-backend", "triton")
    (gate,) = (one for one in found["differences"] if one["field"] == "gate")
    assert gate["before"] == "SGLang tunes neither MoE backend triton nor unquantized GEMMs"
    assert "sm89" in gate["after"]


def test_flags_that_the_other_release_lacks_or_spells_otherwise_are_said() -> None:
    asked = ("--sglang-version", "0.5.23", "--gpu", "b200", "--against", "0.5.12", *SERVER)
    attention = ("--attention-backend", "dsa", "--attn-dp-size", "8")
    found = compared(*asked, *attention, "--cuda-graph-max-bs-decode", "64")
    assert found["flags"] == [
        "--attn-dp-size: SGLang 0.5.12 has no such flag",
        "--attention-backend dsa: SGLang 0.5.12 has no such choice",
        "--cuda-graph-max-bs-decode is spelled --cuda-graph-max-bs in SGLang 0.5.12",
    ]
    assert "SGLang 0.5.12 refuses this command" in found["command_refused"]
    assert found["refused"] is None and found["differences"]


def test_a_command_is_read_by_the_other_release_too() -> None:
    asked = ("--sglang-version", "0.5.19", "--gpu", "b200", "--against", "0.5.20", *SERVER)
    found = compared(*asked)
    assert (found["command_refused"], found["flags"]) == (None, [])
    found = compared(*asked, "--cuda-graph-max-bs", "32")
    assert "could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill" in found["command_refused"]


def test_the_tag_of_an_image_names_the_release_of_today_alone() -> None:
    image = ("docker", "run", "lmsysorg/sglang:v0.5.17", *SERVER[1:])
    found = compared("--gpu", "b200", "--against", "0.5.23", "--", *image)
    assert (found["sglang"], found["command_refused"]) == ("0.5.23", None)
    assert {"key", "skip_ops"} <= {one["field"] for one in found["differences"]}


def test_a_server_that_the_other_release_refuses_is_a_good_answer() -> None:
    asked = ("--sglang-version", "0.5.23", "--against", "0.5.12", *GLM, "--speculative-algorithm", "DSPARK")
    ran = run_here("explain", *asked, "--speculative-draft-model-path", "zai-org/GLM-5.1-FP8")
    assert ran.code == 0
    assert "refused there" in ran.out.splitlines()[0]
    assert "--speculative-algorithm DSPARK is not supported by SGLang 0.5.12" in ran.out


@pytest.mark.parametrize("wrong", [("--against", "0.5.9"), ("--against", "x"), ("--against-gpu", "h900")])
def test_a_release_or_gpu_that_nobody_knows_is_wrong_usage(wrong: tuple[str, str]) -> None:
    ran = run_here("explain", *GLM, *wrong)
    assert ran.code == 2 and wrong[1] in ran.err


def test_the_same_release_changes_nothing_and_says_so() -> None:
    out = run_here("explain", *GLM, "--sglang-version", "0.5.23", "--against", "0.5.23").out
    assert "0 differences" in out and "Nothing that a rule looks at differs." in out


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("other", [("--against", "0.5.12"), ("--against-gpu", "h200")])
def test_the_page_fits_the_terminal(columns: int, other: tuple[str, str]) -> None:
    asked = (*GLM, "--speculative-algorithm", "EAGLE", "--dp", "8", "--enable-dp-attention")
    ran = run_on_terminal("explain", *asked, *other, "--cache-dir", "/c", columns=columns)
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in ran.out.splitlines()]
    assert ran.code == 0 and max(map(len, lines)) <= columns, max(lines, key=len)


def test_no_torch_is_imported_and_it_costs_about_what_a_dry_run_does() -> None:
    seconds: dict[str, float] = {}
    for command in (("warm", "--dry-run"), ("explain", "--against", "0.5.12")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        ran = run_anew(*command, *GLM, PYTHONPROFILEIMPORTTIME="1")
        seconds[command[0]] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        imported = {line.rpartition("|")[2].strip() for line in ran.err.splitlines()}
        assert ran.code == 0 and not imported & {"torch", "flashinfer", "transformers"}
    assert "sgl_tune.explain.against" in imported, "or nothing was looked at"
    assert seconds["explain"] < 2 * seconds["warm"]
