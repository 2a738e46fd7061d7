"""`sgl-tune warm --dry-run` as a user meets it: a page, JSON, paths, and errors in one sentence."""

import json
import re
from pathlib import Path

import pytest

from tests.sgl_tune.planning import BLACKWELL, HOPPER, START, plan, warm
from tests.sgl_tune.running import run, run_on_terminal

CONTRACT = {
    *("schema_version", "deployment", "cache_dir", "key", "key_parts", "files", "groups", "ops", "workers"),
    *("notes", "worker_bytes", "server", "exact", "inexact", "verdict"),
}
PROJECT = """
[deployments.a]
model-path = "Qwen/Qwen3-30B-A3B"
moe-runner-backend = "flashinfer_cutlass"
[deployments.b]
command = "sglang serve zai-org/GLM-5.1 --moe-runner-backend flashinfer_cutlass --tp 8"
"""


def test_json_is_the_contract() -> None:
    data = plan("--model-path", "DeepSeek-V3", "--tp", 8, *BLACKWELL)
    assert set(data) == CONTRACT
    (op,) = data["ops"]
    assert set(op) == {"op", "runner", "buckets", "keys", "policy", "serving_only"}
    assert len(op["keys"]) == len(op["buckets"]) and op["runner"] == "MoERunner"
    assert data["schema_version"] == 2 and data["workers"] >= 1


def test_the_demo_is_planned_without_any_flag(tmp_path: Path) -> None:
    ran = run("warm", "--dry-run", "--format", "json", "--gpu", "cpu", "--tp", 8, "--dp", 8, cwd=tmp_path)
    data = json.loads(ran.out)
    assert ran.code == 0 and data["deployment"]["model_path"] == "demo-moe"
    assert "no model given: the embedded demo model, demo-moe" in data["notes"]
    assert ran.err.startswith("No model is given: this is the embedded demo, demo-moe, with its caches in ")
    assert "/sgl-tune/demo" in ran.err
    assert [path.split("/")[-1] for path in data["files"]] == [f"rank_tp{r}_pp0_dp{r}.json" for r in range(8)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tp", "8", "--dp", "8"),
        ("--", f"{START} --model-path zai-org/GLM-5.1-FP8 --tp 8 --dp 8 --speculative-algorithm EAGLE"),
        ("--model-path", "gpt-oss-120b", "--tp", "4", "--pp", "2", "--quantization", "mxfp4"),
        ("--model-path", "Qwen3-30B-A3B", "--gpu", "sm90"),
    ],
)
def test_the_page_fits_80_columns(arguments: tuple[str, ...]) -> None:
    ran = run_on_terminal("warm", "--dry-run", "--gpu", "sm100", "--cache-dir", "/c", *arguments)
    assert ran.code == int("no warm can tune them here" in ran.out)
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in ran.out.splitlines()]
    assert max(map(len, lines)) <= 80, max(lines, key=len)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--model-path", "Qwen3-30B-A3B"), "tunes nothing: SGLang tunes no experts of MoE backend auto"),
        (("--", f"{START} --model-path DeepSeek-V3 --disable-flashinfer-autotune"), "loads no cache"),
        (("--model-path", "Llama-3.1-8B"), "tunes nothing: SGLang tunes no experts of MoE backend auto"),
    ],
)
def test_a_server_that_tunes_nothing_has_no_files(arguments: tuple[str, ...], why: str) -> None:
    ran = warm(*HOPPER, *arguments)
    first = ran.out.splitlines()[0]
    assert ran.code == 0 and first.startswith("tunes nothing: ") and why in first
    assert "rank_tp0" not in ran.out
    quiet = warm(*HOPPER, "--format", "quiet", *arguments)
    assert quiet.out == "" and f": {first}\n" in quiet.err
    data = plan(*HOPPER, *arguments)
    assert data["files"] == [] and data["verdict"]["says"] == first


def test_quiet_is_one_path_a_line() -> None:
    model = ("--model-path", "DeepSeek-V3", "--tp", "2")
    ran = warm(*model, *BLACKWELL, "--cache-dir", "/c", "--format", "quiet")
    paths = ran.out.splitlines()
    assert len(paths) == 2 and all(path.startswith("/c/flashinfer/autotune/0.7.2/sm100/") for path in paths)


def test_all_deployments_of_a_project_or_the_named_one_are_planned(tmp_path: Path) -> None:
    (tmp_path / "sgl-tune.toml").write_text(PROJECT)
    both = json.loads(run("warm", "--dry-run", "--format", "json", *HOPPER, cwd=tmp_path).out)
    assert [plan["deployment"]["name"] for plan in both["plans"]] == ["a", "b"]
    one = json.loads(
        run("warm", "--dry-run", "--format", "json", "-f", "sgl-tune.toml:b", *HOPPER, cwd=tmp_path).out
    )
    assert set(one) == CONTRACT and len(one["files"]) == 8
    none = run("warm", "--dry-run", "-f", "sgl-tune.toml:c", cwd=tmp_path)
    assert none.code == 2 and "has no deployment 'c'" in none.err and "it has a, b" in none.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model-path", "nowhere"), "no model at 'nowhere'"),
        (("--tp", "8", "--ep", "3"), "--ep 3: MoE backend flashinfer_cutlass wants 1 or all TP ranks"),
        (("--server", "new"), "no model is named"),
        (("--server", "new", "--model-path", "Qwen3-30B-A3B"), "new"),
        (
            ("--model-path", "Qwen3-30B-A3B", "--tp", "7"),
            "32 attention heads cannot be divided among 7 ranks",
        ),
        (("--gpu", "hopper"), "no GPU named 'hopper'"),
        (("--", f"{START} --model-path Qwen3-30B-A3B --dtype float99"), "--dtype float99"),
        (("--mem-fraction-static", "1.5"), "--mem-fraction-static 1.5"),
        (("--mem-fraction-static", "0"), "between 0 and 1"),
        (("--", "serve", "--tp", "8"), "'serve' starts no SGLang server"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    ran = warm(*arguments)
    assert ran.code == 2 and ran.out == ""
    assert message in ran.err and ran.err.startswith("error: ") and "Traceback" not in ran.err


def test_unset_requests_are_planned_for_at_most_and_said() -> None:
    flags = ("--model-path", "DeepSeek-V3", *BLACKWELL)
    assert any("4096 per rank" in note for note in plan(*flags)["notes"])
    assert not any("4096 per rank" in note for note in plan(*flags, "--max-running-requests", 512)["notes"])


def test_another_flashinfer_is_called_unplanned(tmp_path: Path) -> None:
    table = '[deployments.a]\nmodel-path = "DeepSeek-V3"\ngpu = "b200"\nflashinfer-version = "0.9"'
    (tmp_path / "sgl-tune.toml").write_text(table)
    ran = warm("-f", tmp_path / "sgl-tune.toml", "--format", "json")
    assert ran.code == 1 and json.loads(ran.out)["verdict"]["tunes"] == "unplanned"


def test_what_the_core_does_not_have_is_not_known() -> None:
    ran = warm("--moe-runner-backend", "flashinfer_cutlas")
    assert ran.code == 1 and ran.err.startswith("error: not known: --moe-runner-backend flashinfer_cutlas")
    assert "did you mean flashinfer_cutlass?" in ran.err and "`sgl-tune server add" in ran.err


@pytest.mark.parametrize("inside", ["", "below/it"])
def test_a_file_is_no_cache_directory(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    ran = warm("--cache-dir", tmp_path / "file" / inside, *HOPPER)
    assert ran.code == 2 and f"{tmp_path}/file is a file, not a folder" in ran.err
