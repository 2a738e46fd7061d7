"""What `--format json` prints is what docs/schemas says, and no member more."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cli.pages import COMMANDS, SCHEMA_VERSIONS
from tests.sgl_tune.running import ROOT, run
from tests.sgl_tune.schemas import SCHEMAS, schema_faults
from tests.sgl_tune.start_report.logs import entry, flashinfer, head, loaded, served

CACHE = ROOT / "cache-examples" / "cache"
TARGET = ("--target", ROOT / "cache-examples" / "h200.env.json")
MODEL = ("--model-path", "Qwen3-30B-A3B", "--gpu", "h200", "--server", "0.5.23")
DRAFT = "sglang serve GLM-5.1-FP8 --tp 8 --moe-runner-backend flashinfer_trtllm --speculative-algorithm EAGLE"
TUNED = ("--moe-runner-backend", "flashinfer_cutlass")


def _printed(*arguments: object, cwd: Path | None = None) -> Any:
    name, *words = arguments
    ran = run(name, "--format", "json", *words, cwd=cwd)
    assert ran.out, ran.err
    return json.loads(ran.out)


@pytest.mark.parametrize(
    "line",
    [
        ("inspect", CACHE),
        ("inspect", CACHE, "--entries"),
        ("inspect", ROOT / "cache-examples" / "broken"),
        ("verify", CACHE, *TARGET),
        ("verify", ROOT / "cache-examples" / "broken", *TARGET),
        ("verify", "--cache-dir", CACHE, *TARGET, *MODEL, *TUNED),
        ("diff", "4aae", "ad60", "--cache-dir", CACHE),
        ("diff", "4aae", "4aae", "--cache-dir", CACHE),
        ("prune", "--cache-dir", CACHE, "--max-size", "1kB", "--dry-run"),
        ("warm", "--dry-run", *MODEL, *TUNED),
        ("warm", "--dry-run", *MODEL),
        ("warm", "--dry-run", "--gpu", "b200", "--", DRAFT),
    ],
    ids=lambda line: " ".join(str(word).replace(str(ROOT), "") for word in line)[:60],
)
def test_a_command_prints_what_its_schema_says(line: tuple[object, ...]) -> None:
    assert schema_faults(str(line[0]), _printed(*line)) == []


def test_the_plan_of_several_deployments_fits_its_schema(tmp_path: Path) -> None:
    (tmp_path / "sgl-tune.toml").write_text(
        '[defaults]\ngpu = "h200"\n[deployments.a]\nmodel-path = "Qwen3-30B-A3B"\n'
        '[deployments.b]\nmodel-path = "Mixtral-8x7B"\n'
    )
    printed = _printed("warm", "--dry-run", cwd=tmp_path)
    assert len(printed["plans"]) == 2 and schema_faults("warm", printed) == []


def test_reports_of_ready_and_unready_starts_fit_their_schema(tmp_path: Path) -> None:
    tuned = entry(23, "Running FlashInfer autotune with cache: /c/rank.json") + flashinfer(
        24, "Building JIT module x"
    )
    for text in (head() + loaded() + tuned + served(31), head() + loaded()):
        (tmp_path / "server.log").write_text(text)
        assert schema_faults("start-report", _printed("start-report", tmp_path / "server.log")) == []


def test_a_schema_has_the_version_that_its_command_prints() -> None:
    for path in SCHEMAS.glob("*.json"):
        command = next(name for name in sorted(COMMANDS, key=len, reverse=True) if path.stem.startswith(name))
        written = set(re.findall(r'"schema_version": \{\s*"const": (\d+)', path.read_text()))
        assert written == {str(SCHEMA_VERSIONS.get(command, 1))}, path.name


def test_every_command_has_a_schema() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {
        *(*COMMANDS, "mem-report-fit", "mem-report-log", "verify-fleet", "verify-lock")
    }


def test_a_member_too_many_or_of_another_kind_is_noticed() -> None:
    printed = _printed("prune", "--cache-dir", CACHE, "--max-size", "1kB", "--dry-run")
    assert schema_faults("prune", {**printed, "new": 1})
    assert schema_faults("prune", {**printed, "removed": [{"path": 3}]})
    plan = _printed("warm", "--dry-run", *MODEL)
    assert schema_faults("warm", {**plan, "new": 1}) and schema_faults("warm", {**plan, "key": None})
