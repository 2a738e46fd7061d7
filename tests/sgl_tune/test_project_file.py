"""sgl-tune.toml, and which of its deployments a command is about."""

from pathlib import Path

import pytest

from sgl_tune.deployment.options import PROJECT_FILE, ServerFlags
from sgl_tune.deployment.project_file import read_project_file
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import deployments
from tests.sgl_tune.running import run_here

TWO = """
[defaults]
sglang-version = "0.5.23"
flashinfer_version = "0.7.2"
arch = "sm90"

[deployments.chat]
model-path = "Qwen/Qwen3-30B-A3B"
tensor-parallel-size = 4
moe-runner-backend = "flashinfer_cutlass"
mem-fraction-static = 0.9

[deployments.reason]
command = "SGLANG_CACHE_DIR=/c python -m sglang.launch_server --model GLM-5.1-FP8 --tp 8 --port 8"
arch = "sm100"
flashinfer-autotune-skip-ops = ["a"]
"""


def _write(folder: Path, content: str) -> Path:
    file = folder / PROJECT_FILE
    file.write_text(content)
    return file


def test_deployments_are_given_by_flags_or_by_a_command(tmp_path: Path) -> None:
    chat, reason = read_project_file(_write(tmp_path, TWO))
    assert chat.name == "chat" and not chat.command
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm90"}
    given = {"moe_runner_backend": "flashinfer_cutlass", "mem_fraction_static": 0.9}
    assert chat.flags == ServerFlags.of(model_path="Qwen/Qwen3-30B-A3B", tp=4, **given, **target)
    assert reason.command and reason.flags.target.arch == "sm100"
    assert reason.flags.more == {"flashinfer_autotune_skip_ops": ["a"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[deployments", "is not TOML"),
        ("", "names no deployment"),
        ("[deployments]\nx = 1", r"deployments\.x is 1: a table is needed"),
        ("deployments = 1", "deployments is 1"),
        ("[other]", r"\[other\] is unknown"),
        ("[deployments.a]\nports = 3", r"deployments\.a\.ports is no flag"),
        ("[deployments.a]\ntp = '8'", r"deployments\.a\.tp is '8': a whole number is needed"),
        ("[deployments.a]\ntp = true", "a whole number is needed"),
        ("[deployments.a]\nmem-fraction-static = 'x'", "a number is needed"),
        ("[deployments.a]\ndisable-cuda-graph = 1", "true or false is needed"),
        ("[deployments.a]\nmodel-path = ['x']", "a string is needed"),
        ("[deployments.a]\nflashinfer-autotune-skip-ops = [1]", "a list of strings is needed"),
        ("[deployments.a]\ncommand = 3", "command is 3: one string is needed"),
        ("[deployments.a]\ntp = 1000000000000", "--tp is 1000000000000: it must be between"),
        ("[deployments.a]\ntp = " + "9" * 5000, "is not TOML"),
        ("[deployments.a]\nmodel-path = 0x" + "f" * 5000, "is a int too long to show: a string"),
        ("[deployments.a]\nmem-fraction-static = " + "9" * 400, "a number is needed"),
        ("a = " + "[" * 50_000, "is not TOML"),
        ("[deployments.a]\nmodel-path = " + "[" * 400 + "]" * 400, "a string is needed"),
        ('[deployments.a]\ncache-dir = "\\u0000"', r"deployments\.a\.cache-dir holds a NUL"),
        ('[deployments.a]\nflashinfer-autotune-skip-ops = ["\\u0000"]', "holds a NUL"),
        ('[deployments.a]\ncommand = "sglang serve \\u0000"', r"a\.command holds a NUL"),
        ("[defaults]\nnope = 1", r"defaults\.nope is no flag"),
    ],
)
def test_what_does_not_belong_is_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_project_file(_write(tmp_path, content))
    assert str(tmp_path / PROJECT_FILE) in caught.value.message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / PROJECT_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        read_project_file(tmp_path / PROJECT_FILE)


def test_without_a_model_all_deployments_of_the_file_are_selected(tmp_path: Path) -> None:
    _write(tmp_path, TWO.replace('flashinfer-autotune-skip-ops = ["a"]', ""))
    chat, reason = deployments(ServerFlags(), environ={}, folder=tmp_path)
    assert (chat.name, chat.parallel.tp) == ("chat", 4)
    assert (reason.name, reason.parallel.tp, str(reason.cache_dir)) == ("reason", 8, "/c")


def test_a_deployment_is_selected_by_name_and_flags_override_it(tmp_path: Path) -> None:
    _write(tmp_path, TWO)
    flags = ServerFlags.of(tp=2, sglang_version="0.5.23")
    (chat,) = deployments(flags, name="sgl-tune.toml:chat", environ={}, folder=tmp_path)
    assert (chat.parallel.tp, chat.inputs.sglang_version) == (2, "0.5.23")


def test_a_flag_over_a_command_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, TWO)
    with pytest.raises(UsageError, match=r"^--flashinfer-autotune-skip-ops .*, reason's in the project file"):
        deployments(ServerFlags(), name="sgl-tune.toml:reason", environ={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("flags", "command", "content", "message"),
    [
        (ServerFlags(), (), TWO, "has no deployment 'other'"),
        (ServerFlags(), (), None, "there is no such file"),
        (ServerFlags.of(model_path="DeepSeek-V3"), (), TWO, "a model is given too"),
        (ServerFlags(), ("--tp", "2"), TWO, "name two deployments"),
    ],
)
def test_a_name_of_no_deployment_is_refused(
    tmp_path: Path, flags: ServerFlags, command: tuple[str, ...], content: str | None, message: str
) -> None:
    if content is not None:
        _write(tmp_path, content)
    with pytest.raises(UsageError, match=message):
        deployments(flags, command, "sgl-tune.toml:other", tmp_path)


def test_a_file_without_a_name_is_all_or_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults, _, chat = TWO.partition("[deployments.reason]")[0].partition("[deployments.chat]")
    tables = f"{defaults}[deployments.chat]{chat}[deployments.reason]{chat}"
    (tmp_path / "old.toml").write_text(tables)
    monkeypatch.chdir(tmp_path)
    for command in ("verify", "doctor"):
        ran = run_here(command, *(("--cache-dir", tmp_path) if command == "verify" else ()), "-f", "old.toml")
        assert ran.code == 1 and "the next start loads 0 of 8 files" in ran.out
    said = "error: old.toml has several deployments: chat, reason\n  fix: pick one: -f old.toml:chat\n"
    for command in ("explain", "mem-report", "warm --everything", f"verify --server {tmp_path}"):
        ran = run_here(*command.split(), "-f", "old.toml")
        assert ran.code == 2 and ran.err.endswith(said)
