"""A pasted server command, read as SGLang's argparse would."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.releases import release_named
from sgl_tune.deployment.positionals import split_positionals
from sgl_tune.deployment.server_command import parse_server_command
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import TARGET, plan, warm

START = "python -m sglang.launch_server"
QWEN = "--model-path Qwen/Qwen3-30B-A3B"


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (f"{START} {QWEN}", {}),
        (f"{START} --model=Qwen/Qwen3-30B-A3B", {}),
        ("/usr/bin/python3.11 -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", {}),
        (f"sglang serve {QWEN}", {}),
        ("sglang serve Qwen/Qwen3-30B-A3B --tp 2", {"tp_size": 2}),
        ("env A=1 python -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", {}),
        ("--model Qwen/Qwen3-30B-A3B --tensor-parallel-size 8", {"tp_size": 8}),
        (f"{START} {QWEN} --tp-size=4 --tp 8", {"tp_size": 8}),
        (
            f"{START} {QWEN} --dp 8 --enable-dp-attention --tp 8",
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
        ),
        (f"{START} {QWEN} --context-length 128k", {"context_length": 128000}),
        (f"{START} {QWEN} --context-length 32Ki", {"context_length": 32768}),
        (f"{START} {QWEN} --mem-fraction-static .85", {"mem_fraction_static": 0.85}),
        (f"{START} {QWEN} --chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        (f"{START} {QWEN} --max-running 48", {"max_running_requests": 48}),
        (f"{START} {QWEN} --cuda-graph-max-bs-decode 64", {"cuda_graph_max_bs": 64}),
        (f"{START} {QWEN} --enable-deterministic-inference", {"enable_deterministic_inference": True}),
        (
            f"{START} {QWEN} --flashinfer-autotune-skip-ops a b --tp 2",
            {"flashinfer_autotune_skip_ops": ("a", "b"), "tp_size": 2},
        ),
        (f"{START} \\\n  --tp 2 \\\n  {QWEN}", {"tp_size": 2}),
    ],
)
def test_a_command_is_what_its_server_is_asked(command: str, asked: dict[str, Any]) -> None:
    expected = Asked(model_path="Qwen/Qwen3-30B-A3B", **asked)
    assert parse_server_command([command]).asked == expected
    if "\\" not in command:
        assert parse_server_command(command.split()).asked == expected


def test_each_release_reads_by_its_own_grammar() -> None:
    old, new = (release_named(version).release for version in ("0.5.13", "0.5.23"))
    short = [f"{START} {QWEN} --cuda-graph-max-bs 64"]
    assert parse_server_command(short, old).asked.cuda_graph_max_bs == 64
    with pytest.raises(UsageError, match=r"0\.5\.23 refuses this command: ambiguous option"):
        parse_server_command(short, new)
    with pytest.raises(UsageError, match="unrecognized arguments: --attn-dp-size"):
        parse_server_command([f"{START} {QWEN} --attn-dp-size 2"], old)


def test_the_rest_is_named_as_without_effect() -> None:
    line = parse_server_command(
        [
            f"CUDA_VISIBLE_DEVICES=0,1 SGLANG_CACHE_DIR=/c {START} {QWEN} --host 0.0.0.0 --port 30000 "
            "--trust-remote-code --tp 2 --device cuda --dist-init-addr a:1"
        ]
    )
    assert line.environment == {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_CACHE_DIR": "/c"}
    assert line.dist_init_addr == "a:1"
    assert line.unread.without_effect == (
        *("CUDA_VISIBLE_DEVICES", "--host 0.0.0.0", "--port 30000"),
        *("--trust-remote-code", "--device cuda"),
    )
    assert line.unread.not_modelled == ()


def test_flags_with_an_effect_that_is_not_followed_are_named_apart() -> None:
    line = parse_server_command([f"{START} {QWEN} --moe-dp-size 2 --tp 4"])
    assert line.unread.not_modelled == ("--moe-dp-size 2",)
    assert line.unread.without_effect == ()


def test_what_is_not_modelled_is_said_with_the_verdict_and_kept() -> None:
    command = (*START.split(), "--model", "DeepSeek-V3", "--cpu-offload-gb", "8", "--device", "cuda")
    ran = warm(*TARGET, "--arch", "sm100", "--", *command)
    assert ran.out.splitlines()[0].endswith("; not counting --cpu-offload-gb 8: not modelled")
    data = plan(*TARGET, "--arch", "sm100", "--", *command)
    assert data["deployment"]["not_modelled"] == ["--cpu-offload-gb 8"]


def test_secrets_are_not_told() -> None:
    line = parse_server_command(
        [f"HF_TOKEN=hidden A=hidden {START} {QWEN} --api-key hidden --admin-api-key=hidden"]
    )
    assert line.unread.without_effect == ("HF_TOKEN", "A", "--api-key ***", "--admin-api-key ***")


def test_variables_of_the_libraries_are_told_as_not_looked_at() -> None:
    data = plan(*TARGET, "--arch", "sm90", "--", f"NCCL_DEBUG=INFO SGLANG_X=1 {START} {QWEN}")
    assert "not looked at, whatever they change: NCCL_DEBUG=INFO SGLANG_X=1" in data["notes"]


def test_an_empty_json_list_is_a_value() -> None:
    assert parse_server_command([f"{START} {QWEN} --forward-hooks []"]).asked.model_path


@pytest.mark.parametrize(("way", "told"), [("dummy", ()), ("flash_rl", ("--load-format flash_rl",))])
def test_weights_that_become_others_as_they_are_loaded_are_told(way: str, told: tuple[str, ...]) -> None:
    unread = parse_server_command([f"{START} {QWEN} --load-format {way}"]).unread
    assert (unread.not_modelled, unread.without_effect) == (told, ())


def test_what_reports_how_experts_are_used_counts_them() -> None:
    unread = parse_server_command([f"{START} {QWEN} --expert-balancedness-report-mode both"]).unread
    assert unread.not_modelled == ("--expert-balancedness-report-mode both",)


def test_what_is_asked_as_it_would_be_anyway_is_without_effect() -> None:
    line = parse_server_command([f"{START} {QWEN} --cpu-offload-gb 0 --dcp-size 1"])
    assert line.unread.not_modelled == () and line.unread.without_effect == (
        "--cpu-offload-gb 0",
        "--dcp-size 1",
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nohup serve --tp 2", "nohup serve --tp starts no SGLang server"),
        ("serve --tp 2", "'serve' starts no SGLang server"),
        ("python -m vllm --tp 2", "python -m vllm starts no SGLang server"),
        ("python", "python starts no SGLang server"),
        ("sglang generate --tp 2", "starts no SGLang server"),
        (f"{START} --tp 2", "required: --model-path"),
        (f"{START} {QWEN} stray --tp 2", "unrecognized arguments: stray"),
        (f"{START} {QWEN} -tp 2", "unrecognized arguments: -tp"),
        (f"{START} {QWEN} --tp two", "invalid int value: 'two'"),
        (f"{START} {QWEN} --context-length {'9' * 400}G", "--context-length"),
        (f"{START} {QWEN} --tp", "expected one argument"),
        (f"{START} {QWEN} --attn-dp-size=--", "expected one argument|invalid int value: '--'"),  # by Python
        (f"{START} {QWEN} --tp 2 4", "unrecognized arguments: 4"),
        (f"{START} {QWEN} --enable-dp-attention=yes", "ignored explicit argument 'yes'"),
        (f"{START} {QWEN} --kv-cache-dtpye fp8_e4m3", "--kv-cache-dtpye"),
        (f"{START} --config nowhere.yaml", r"nowhere\.yaml cannot be read: No such file"),
        (f"{START} --model 'open", "cannot be split into words"),
    ],
)
def test_what_no_server_would_take_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_server_command([command])


def test_a_mistyped_flag_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        parse_server_command([f"{START} --modle-path deepseek-ai/DeepSeek-V3"])
    assert "--model-path" in (caught.value.remedy or "")


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
        (["path", "python -m x --tp 2"], ["path"], ["python -m x --tp 2"]),
        (["kind: Pod\n"], [], ["kind: Pod\n"]),
        (["my folder/cache"], ["my folder/cache"], []),
    ],
)
def test_a_commands_own_arguments_stand_before_the_servers(
    words: list[str], own: list[str], command: list[str]
) -> None:
    assert split_positionals(words) == (own, command)


def test_a_command_plans_what_the_same_flags_plan() -> None:
    flags = ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8", "--dp", "8", "--enable-dp-attention")
    target = (*TARGET, "--arch", "sm100", "--cache-dir", "/caches")
    by_flags = plan(*flags, *target)
    by_command = plan(*target, "--", *START.split(), *flags)
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
