"""A pasted server command, read as SGLang's argparse would."""

from __future__ import annotations

from typing import Any

import pytest

from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags, flag_names, flag_types
from sgl_tune.deployment.server_command import parse_server_command, split_positionals
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import TARGET, plan, warm

START = "python -m sglang.launch_server"
MODEL = {"model_path": "Qwen/Qwen3-30B-A3B"}


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (f"{START} --model-path Qwen/Qwen3-30B-A3B", MODEL),
        (f"{START} --model=Qwen/Qwen3-30B-A3B", MODEL),
        ("/usr/bin/python3.11 -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", MODEL),
        ("sglang serve --model-path Qwen/Qwen3-30B-A3B", MODEL),
        ("sglang serve Qwen/Qwen3-30B-A3B --tp 2", {**MODEL, "tp": 2}),
        ("env A=1 python -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", MODEL),
        ("--model Qwen/Qwen3-30B-A3B --tensor-parallel-size 8", {**MODEL, "tp": 8}),
        (f"{START} --tp-size=4 --tp 8", {"tp": 8}),
        (f"{START} --dp 8 --enable-dp-attention --tp 8", {"tp": 8, "dp": 8, "enable_dp_attention": True}),
        (f"{START} --context-length 128k", {"context_length": 128000}),
        (f"{START} --context-length 32Ki", {"context_length": 32768}),
        (f"{START} --mem-fraction-static .85", {"mem_fraction_static": 0.85}),
        (f"{START} --chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        (f"{START} --max-running 48", {"max_running_requests": 48}),
        (f"{START} --flashinfer-autotune-skip-ops a b --tp 2", {"skip_ops": ["a", "b"], "tp": 2}),
        (f"{START} \\\n  --tp 2 \\\n  --model Qwen/Qwen3-30B-A3B", {**MODEL, "tp": 2}),
    ],
)
def test_what_decides_a_cache_becomes_flags(command: str, flags: dict[str, Any]) -> None:
    expected = ServerFlags(**flags)
    assert parse_server_command([command]).flags == expected
    if "\\" not in command:
        assert parse_server_command(command.split()).flags == expected


def test_every_spelling_of_a_flag_is_read() -> None:
    for name, field in flag_names().items():
        if field in TARGET_FIELDS or name == "--no-enable-dp-attention":
            continue
        kind = flag_types()[field]
        value: Any = True if kind is bool else ["3"] if kind is list else kind("3")
        words = [name] if kind is bool else [name, "3"]
        assert parse_server_command([*START.split(), *words]).flags.given() == {field: value}


def test_the_rest_is_named_as_without_effect() -> None:
    line = parse_server_command(
        [
            f"CUDA_VISIBLE_DEVICES=0,1 SGLANG_CACHE_DIR=~/c {START} --host 0.0.0.0 --port 30000 "
            "--trust-remote-code --tp 2 --lora-paths a=b c=d --device cuda"
        ]
    )
    assert line.environment == {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_CACHE_DIR": "~/c"}
    assert line.without_effect == (
        *("CUDA_VISIBLE_DEVICES=0,1", "--host 0.0.0.0", "--port 30000"),
        *("--trust-remote-code", "--lora-paths a=b c=d", "--device cuda"),
    )
    assert line.not_followed == ()


def test_flags_with_an_effect_that_is_not_followed_are_named_apart() -> None:
    line = parse_server_command([f"{START} --moe-dp-size 2 --tp 4 --enable-deterministic-inference"])
    assert line.not_followed == ("--moe-dp-size 2", "--enable-deterministic-inference")
    assert line.without_effect == ()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nohup serve --tp 2", "after -- stands 'nohup'"),
        ("python -m vllm --tp 2", "python -m vllm starts no SGLang server"),
        ("python", "python starts no SGLang server"),
        ("sglang generate --tp 2", "starts no SGLang server"),
        (f"{START} stray --tp 2", "has 'stray' where a flag should be"),
        (f"{START} -tp 2", "has '-tp' where a flag should be"),
        (f"{START} --tp two", "--tp 'two' is not a number"),
        (f"{START} --context-length {'9' * 400}G", "is not a number"),
        (f"{START} --tp", "--tp takes one value, and has 0"),
        (f"{START} --tp 2 4", "--tp takes one value, and has 2"),
        (f"{START} --enable-dp-attention yes", "--enable-dp-attention takes no value"),
        (f"{START} --config server.yaml", "--config file is not read"),
        (f"{START} --arch sm90", "--arch is sgl-tune's"),
        (f"{START} --model 'open", "cannot be split into words"),
    ],
)
def test_what_no_server_would_take_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_server_command([command])


@pytest.mark.parametrize(
    ("words", "own", "command"),
    [
        ([], [], []),
        (["path"], ["path"], []),
        (["a", "b"], ["a", "b"], []),
        (["path", "python", "-m", "x"], ["path"], ["python", "-m", "x"]),
        (["path", "--tp", "2"], ["path"], ["--tp", "2"]),
        (["A=1", "python"], [], ["A=1", "python"]),
        (["sglang", "serve", "m"], [], ["sglang", "serve", "m"]),
    ],
)
def test_a_commands_own_arguments_stand_before_the_servers(
    words: list[str], own: list[str], command: list[str]
) -> None:
    assert split_positionals(words) == (own, command)


def test_a_command_plans_what_the_same_flags_plan() -> None:
    flags = ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8", "--dp", "8")
    target = (*TARGET, "--arch", "sm100", "--cache-dir", "/caches")
    by_flags = plan(*flags, *target)
    by_command = plan(*target, "--", *START.split(), *flags, "--enable-dp-attention")
    assert {**by_command, "notes": 0, "deployment": 0} == {**by_flags, "notes": 0, "deployment": 0}


def test_a_command_gets_no_dp_attention_it_did_not_ask_for() -> None:
    data = plan(
        *TARGET, "--arch", "sm100", "--", *START.split(), "--model", "DeepSeek-V3", "--tp=8", "--dp=8"
    )
    assert data["key_parts"][6] == "1" and len(data["groups"]) == 8


def test_the_commands_environment_decides_the_cache_dir() -> None:
    command = ("SGLANG_CACHE_DIR=~/mine", *START.split(), "--model", "Qwen3-30B-A3B", "--host", "::")
    data = plan(*TARGET, "--arch", "sm90", "--", *command)
    assert data["cache_dir"] == "~/mine"
    assert "without effect on the cache: --host ::" in data["notes"]
    beside = plan(*TARGET, "--arch", "sm90", "--cache-dir", "/other", "--", *command)
    assert beside["cache_dir"] == "/other"


def test_a_server_flag_beside_a_command_is_refused() -> None:
    ran = warm("--tp", "8", *TARGET, "--", *START.split(), "--model", "Qwen3-30B-A3B")
    assert ran.code == 2 and "--tp is given beside a server command" in ran.err
