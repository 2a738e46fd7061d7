"""Kept records: private, bounded, and found only while nothing changed that an answer depends on."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.ghost.gpus import gpus
from runtime.sglang.command import checked
from sgl_tune.asking import asking as module
from sgl_tune.asking.asking import Asking, ingredients
from sgl_tune.asking.kept import Kept, digest_of, digest_of_files, own_source
from sgl_tune.asking.question import Question
from sgl_tune.servers.server import Server
from tests.sgl_tune.memory.records import ready
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import told

SERVER = Server(
    python=Path("/venv/bin/python3"),
    python_version="3.11",
    folders=(Path("/venv/lib"),),
    packages=Path("/venv/lib"),
    sglang="0.5.17",
    torch="2.11.0",
    flashinfer="0.7.2",
    cuda=13,
    found="--server",
)


@pytest.fixture
def question(tmp_path: Path) -> Question:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "hf_quant_config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"1234")
    return Question(SERVER, ("--model-path", str(model)), {"SGLANG_X": "1"}, gpus()["h200"])


def digest(question: Question, work: Path, **changes: Any) -> str:
    command = checked(
        question.argv, question.environment, trust_remote_code=changes.pop("trust_remote_code", False)
    )
    return digest_of(ingredients(question, command, Asking(work, **changes)))


def _config(question: Question, name: str, text: str) -> Question:
    (Path(question.model) / name).write_text(text)
    return question


CHANGES: dict[str, Callable[[Question], Question]] = {
    "a flag": lambda one: one.with_flags(["--tp", "2"]),
    "a variable": lambda one: replace(one, environment={"SGLANG_X": "2"}),
    "the config": lambda one: _config(one, "config.json", '{"model_type": "llamb"}'),
    "the quantization's file": lambda one: _config(one, "hf_quant_config.json", "{ }"),
    "another file": lambda one: _config(one, "generation_config.json", "{}"),
    "the model's own code": lambda one: _config(one, "modeling.py", "x"),
    "the size of weights": lambda one: _config(one, "model.safetensors", "12345"),
    "the GPU": lambda one: replace(one, gpu=gpus()["b200"]),
    "a number of the GPU": lambda one: replace(
        one, gpu=replace(one.gpu, numbers={**one.gpu.numbers, "total": one.gpu.numbers["major"]})
    ),
    "its memory": lambda one: replace(one, total_bytes=1 << 36),
    "what others hold of it": lambda one: replace(one, taken_bytes=1 << 30),
    "the rank": lambda one: replace(one, rank=1),
    "the Python": lambda one: replace(one, server=replace(SERVER, python_version="3.12")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_ingredient_is_a_miss(change: str, question: Question, tmp_path: Path) -> None:
    before = digest(question, tmp_path)
    assert digest(question, tmp_path) == before
    assert digest(CHANGES[change](question), tmp_path) != before


def test_the_models_own_code_that_may_run_is_a_miss(question: Question, tmp_path: Path) -> None:
    asked = question.with_flags(["--trust-remote-code"])
    _config(asked, "config.json", '{"auto_map": {"AutoModel": "modeling.Foo"}}')
    assert digest(asked, tmp_path) != digest(asked, tmp_path, trust_remote_code=True)


def test_whether_equal_layers_are_folded_is_a_miss(question: Question, tmp_path: Path) -> None:
    assert digest(question, tmp_path) != digest(question, tmp_path, fold=True)


def test_a_folder_of_one_question_does_not_count_by_its_place(question: Question, tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        made = tmp_path / name / "models0" / "org-llama"
        made.mkdir(parents=True)
        (made / "config.json").write_text("{}")
        asked = replace(question, argv=("--model-path", str(made)))
        digests.add(digest(asked, tmp_path / name))
    assert len(digests) == 1


def test_built_modules_miss(question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "fused_moe_90.so"
    built.write_bytes(b"1")
    digests = {digest(question, tmp_path)}
    monkeypatch.setattr(module, "_halves", lambda question: {"fused_moe_90": str(built)})
    digests.add(digest(question, tmp_path))
    built.write_bytes(b"22")
    digests.add(digest(question, tmp_path))
    assert len(digests) == 3


SOURCE = ("ghost/gpus.toml", "ghost/c/memory.c", "sglang/inside/start.py", "record/record.py")


@pytest.mark.parametrize("name", [*SOURCE[:3], "record/new.py"])
def test_the_ghosts_own_source_and_tables_are_ingredients(name: str, tmp_path: Path) -> None:
    for file in SOURCE:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1")
    before = digest_of_files(own_source(tmp_path))
    (tmp_path / name).write_text("2")
    assert digest_of_files(own_source(tmp_path)) != before


def test_a_kept_record_is_found_and_its_folder_is_private(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "records")
    assert kept.find("0" * 64) is None
    kept.keep("0" * 64, ready())
    assert kept.find("0" * 64) == ready()
    assert stat.S_IMODE((tmp_path / "records").stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{}", "[", "\0", json.dumps({"schema_version": 99})])
def test_a_damaged_record_is_a_miss(text: str, tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    (tmp_path / f"{'0' * 64}.json").write_text(text)
    assert kept.find("0" * 64) is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    size = len(ready().to_json())
    kept = Kept(tmp_path, most_bytes=2 * size + 10)
    for number, name in enumerate(("a", "b")):
        kept.keep(name, ready())
        os.utime(tmp_path / f"{name}.json", (1000 + number, 1000 + number))
    assert kept.find("a") is not None, "which makes it the last used"
    kept.keep("c", ready())
    assert {file.stem for file in kept.files()} == {"a", "c"}


def test_prune_removes_kept_answers_and_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stages, elsewhere = tmp_path / "sgl-tune/kernels/ttir-ttgir", tmp_path / "elsewhere"
    for folder in (stages, elsewhere):
        folder.mkdir(parents=True)
        (folder / "abc.json").write_text("{}")
    (stages / ".part-of-a-dead-writer").write_text("{")
    kept = Kept(tmp_path / "sgl-tune/records")
    kept.keep("0" * 64, ready())
    (stages.parent / "link").symlink_to(elsewhere)
    data = told("prune", "--answers", "--dry-run")
    assert len(kept.files()) == 1
    assert {(one["layout"], one["key"]) for one in data["removed"]} >= {("kernels", "abc")}
    assert "Removed 1 answer, 2 files of compiled kernels" in run_here("prune", "--answers").out
    assert not kept.files() and list(stages.iterdir()) == [] and (elsewhere / "abc.json").exists()


def test_kernels_and_records_share_one_limit(tmp_path: Path) -> None:
    stages = tmp_path / "kernels/ttir"
    stages.mkdir(parents=True)
    (stages / "old.json").write_text("x" * 1000)
    os.utime(stages / "old.json", (1000, 1000))
    (stages / "new.json").write_text("x" * 1000)
    size = len(ready().to_json())
    Kept(tmp_path / "records", most_bytes=size + 1500, kernels=tmp_path / "kernels").keep("a", ready())
    assert [file.name for file in stages.iterdir()] == ["new.json"]
