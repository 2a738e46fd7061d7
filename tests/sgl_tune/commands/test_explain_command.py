"""`sgl-tune explain` as its users run it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.deepseek_v4 import FLASH, folder_of
from tests.sgl_tune.planning import plan
from tests.sgl_tune.running import run_here, run_on_terminal

GLM = ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8", "--gpu", "b200", "--sglang-version", "0.5.23")
QWEN = ("--model-path", "Qwen/Qwen3-235B-A22B", "--tp", "8", "--gpu", "h200", "--sglang-version", "0.5.23")


def explained(*arguments: object) -> dict[str, Any]:
    ran = run_here("explain", "--format", "json", *arguments)
    assert ran.code == 0, ran.err
    data: dict[str, Any] = json.loads(ran.out)
    return data


def rows(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["field"]: row for row in data["explained"]}


def test_json_is_the_dry_run_and_what_explains_it() -> None:
    data = explained(*GLM)
    more = {"explained", "explained_key", "explained_draft_key"}
    planned = plan(*GLM)
    assert planned.keys() - data.keys() == {"exact", "inexact"}  # only a warm asks a server
    assert {name: data[name] for name in data.keys() - more} == {
        name: planned[name] for name in data.keys() - more
    }
    assert {frozenset(row) for row in data["explained"]} == {
        frozenset(("field", "value", "set", "why", "since"))
    }


def test_every_value_under_server_is_explained() -> None:
    data = explained(*GLM, "--speculative-algorithm", "EAGLE")
    told = rows(data)
    assert set(data["server"]) <= set(told)
    assert {name: told[name]["value"] for name in data["server"]} == data["server"]
    assert all(row["why"] for row in told.values())


def test_a_value_names_the_rule_on_the_branch_that_was_taken() -> None:
    glm, qwen = rows(explained(*GLM)), rows(explained(*QWEN))
    assert glm["attention_backend"]["why"] == "sparse attention"
    assert qwen["attention_backend"]["why"] == "multi-head attention on sm90"
    assert glm["kv_cache_dtype"]["why"] == "sparse attention on sm100"
    assert qwen["kv_cache_dtype"]["why"] == "the model's dtype"
    assert glm["moe_runner_backend"]["why"] == "GlmMoeDsaForCausalLM in fp8 on sm100"


def test_since_is_the_first_release_that_does_so_and_nothing_where_all_do() -> None:
    told = rows(explained(*GLM))
    assert told["attention_backend"]["since"] == "0.5.13", "before, it was nsa"
    assert told["page_size"]["since"] is None
    parts = {part["name"]: part["since"] for part in explained(*GLM)["explained_key"]}
    assert (parts["candidate_selection"], parts["skip_ops"], parts["tp"]) == ("0.5.23", "0.5.18", None)


def test_the_key_of_a_draft_is_told_where_it_is_another_than_its_targets() -> None:
    asked = (*GLM, "--speculative-algorithm", "EAGLE")
    (part,) = explained(*asked)["explained_draft_key"]
    assert (part["part"], part["since"]) == ("draft_quant=fp8", "0.5.15")
    assert "the same, but\n  draft_quant" in run_here("explain", *asked).out


def test_what_was_asked_and_changed_says_both() -> None:
    asked = (*GLM, "--dp", "8", "--enable-dp-attention", "--chunked-prefill-size", "4096")
    row = rows(explained(*asked))["chunked_prefill_size"]
    assert (row["set"], row["value"]) == (4096, 512)
    assert "4096 was asked; 8 groups of DP attention share it" in run_here("explain", *asked).out


def test_the_page_is_quiet_about_defaults_unless_all_is_asked() -> None:
    few, all_of_it = (run_here("explain", *GLM, *more).out for more in ((), ("--all",)))
    assert "--moe-a2a-backend" not in few and "--tp-size" not in few
    for said in ("--moe-a2a-backend", "--tp-size", "--disable-radix-cache", "as set", "the default"):
        assert said in all_of_it
    assert "goes without saying" in few and "goes without saying" not in all_of_it


def test_a_server_that_tunes_nothing_says_so_first_and_what_would_make_it_tune() -> None:
    first = run_here("explain", *QWEN).out.splitlines()[0]
    says = "tunes nothing: SGLang tunes neither MoE backend auto nor unquantized GEMMs; "
    says += "with --moe-runner-backend flashinfer_cutlass it tunes 2 ops, 42 entries in 8 files"
    assert first == f"Qwen3-235B-A22B: {says}"
    assert explained(*QWEN)["verdict"]["says"] == says


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("flags", [GLM, QWEN, (*GLM, "--speculative-algorithm", "EAGLE", "--all")])
def test_the_page_fits_the_terminal(columns: int, flags: tuple[str, ...]) -> None:
    ran = run_on_terminal("explain", *flags, "--cache-dir", "/c", columns=columns)
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in ran.out.splitlines()]
    assert ran.code == 0 and max(map(len, lines)) <= columns, max(lines, key=len)


def test_markdown_is_tables_of_the_same() -> None:
    ran = run_here("explain", *GLM, "--format", "markdown")
    assert ran.out.startswith("## GLM-5.1-FP8: tunes 1 op, 22 entries in 8 files\n")
    assert "| --attention-backend | dsa | sparse attention (since 0.5.13) |" in ran.out
    compared = run_here("explain", *GLM, "--against", "0.5.12", "--format", "markdown").out
    assert "| --attention-backend | dsa -> nsa (until 0.5.12) | sparse attention |" in compared


def test_quiet_is_the_key_or_the_names_of_what_differs() -> None:
    key = explained(*GLM)["key"]
    assert run_here("explain", *GLM, "--format", "quiet").out == f"{key}\n"
    differing = run_here("explain", *QWEN, "--against", "0.5.22", "--format", "quiet").out.split()
    assert differing[:2] == ["key", "candidate_selection"]


def test_every_deployment_of_a_project_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sgl-tune.toml").write_text(
        '[deployments.a]\nmodel-path = "Qwen/Qwen3-235B-A22B"\n'
        '[deployments.b]\ncommand = "sglang serve zai-org/GLM-5.1 --tp 8 --attention-backend dsa"\n'
    )
    monkeypatch.chdir(tmp_path)
    data = explained("--gpu", "h200", "--sglang-version", "0.5.20", "--against", "0.5.12")
    models = [one["deployment"]["model_path"] for one in data["plans"]]
    assert models == ["Qwen/Qwen3-235B-A22B", "zai-org/GLM-5.1"]
    refused = [one["against"]["command_refused"] for one in data["plans"]]
    assert refused[0] is None and "invalid choice: 'dsa'" in refused[1], "of the second alone"


def test_a_value_as_wide_as_its_column_stands_apart_from_its_reason(tmp_path: Path) -> None:
    model = folder_of(FLASH, tmp_path)
    ran = run_here(
        "explain", "--model-path", model, "--tp", "4", "--gpu", "b200", "--sglang-version", "0.5.23"
    )
    assert "_DeepseekV4ConfigAlias  model_type deepseek_v4" in ran.out
