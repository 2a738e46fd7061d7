"""A pasted server command, as far as the runtime core follows its flags."""

from typing import Any

import pytest

from sgl_tune.deployment.file_option import split_positionals
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.server_command import ServerCommandLine, read_launch
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import START, TARGET, plan, warm

QWEN = "--model-path Qwen/Qwen3-30B-A3B"


def read(*words: str) -> ServerCommandLine:
    return read_launch(launch_of(words))


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (f"{START} {QWEN}", {}),
        (f"{START} --model=Qwen/Qwen3-30B-A3B", {}),
        ("/usr/bin/python3.11 -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", {}),
        (f"sglang serve {QWEN}", {}),
        ("sglang serve Qwen/Qwen3-30B-A3B --tp 2", {"tp": 2}),
        ("env A=1 python -m sglang.launch_server --model Qwen/Qwen3-30B-A3B", {}),
        ("--model Qwen/Qwen3-30B-A3B --tensor-parallel-size 8", {"tp": 8}),
        (f"{START} {QWEN} --tp-size=4 --tp 8", {"tp": 8}),
        (f"{START} {QWEN} --dp 8 --enable-dp-attention", {"dp": 8, "enable_dp_attention": True}),
        (f"{START} {QWEN} --context-length 128k", {"context_length": 128000}),
        (f"{START} {QWEN} --context-length 1.5k", {"context_length": 1500}),
        (f"{START} {QWEN} --context-length 32Ki", {"context_length": 32768}),
        (f"{START} {QWEN} --mem-fraction-static .85", {"mem_fraction_static": 0.85}),
        (f"{START} {QWEN} --chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        (f"{START} {QWEN} --cuda-graph-max-bs-decode 64", {"cuda_graph_max_bs": 64}),
        (f"{START} {QWEN} --cuda-graph-bs 1 2 4 --tp 2", {"cuda_graph_bs": [1, 2, 4], "tp": 2}),
        (f"{START} {QWEN} --flashinfer-autotune-skip-ops a", {"flashinfer_autotune_skip_ops": ["a"]}),
        (f"{START} \\\n  --tp 2 \\\n  {QWEN}", {"tp": 2}),
    ],
)
def test_a_command_is_what_its_server_is_asked(command: str, asked: dict[str, Any]) -> None:
    expected = ServerFlags.of(model_path="Qwen/Qwen3-30B-A3B", **asked)
    assert read(command).flags == expected
    if "\\" not in command:
        assert read(*command.split()).flags == expected


def test_flags_that_change_nothing_are_passed_over() -> None:
    line = read(
        f"CUDA_VISIBLE_DEVICES=0,1 SGLANG_CACHE_DIR=/c {START} {QWEN} --host 0.0.0.0 --port 30000 "
        "--trust-remote-code --tp 2 --api-key hidden --dist-init-addr a:1 --revision main"
    )
    assert line.environment == {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_CACHE_DIR": "/c"}
    assert (line.flags.more["dist_init_addr"], line.revision) == ("a:1", "main")
    assert line.unfollowed == () and line.variables == ()


def test_a_flag_that_the_core_does_not_know_is_named_and_no_error() -> None:
    line = read(f"{START} {QWEN} --cpu-offload-gb 8 --lora-paths a=b c=d --foo --tp 4")
    assert line.unfollowed == ("--cpu-offload-gb", "--lora-paths", "--foo") and line.flags.tp == 4
    assert read(f"{START} {QWEN} --attn-cp-size 2").unfollowed == ("--attn-cp-size",)


def test_a_short_flag_is_the_one_that_it_begins_and_no_other() -> None:
    found = read(f"{START} --model-pa m --mem-frac .8 --moe-runner triton --tensor-p 4 --trust-rem").flags
    assert found == ServerFlags.of(model_path="m", mem_fraction_static=0.8, moe_runner_backend="triton", tp=4)


def test_what_is_not_followed_is_said_with_the_verdict_and_kept() -> None:
    command = (*START.split(), "--model", "DeepSeek-V3", "--cpu-offload-gb", "8", "--device", "cuda")
    ran = warm(*TARGET, "--gpu", "sm100", "--", *command)
    said = "; not followed by the core: --cpu-offload-gb; a server answers for it: --server; the core did not"
    assert f"{said} check whether SGLang takes these flags\n" in ran.out
    data = plan(*TARGET, "--gpu", "sm100", "--", *command)
    assert data["deployment"]["not_followed"] == ["--cpu-offload-gb"]


def test_variables_of_the_libraries_are_told_as_not_looked_at() -> None:
    data = plan(*TARGET, "--gpu", "sm90", "--", f"NCCL_DEBUG=INFO SGLANG_X=1 {START} {QWEN}")
    assert "variables not read, which may change the start: NCCL_DEBUG=INFO SGLANG_X=1" in data["notes"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nohup serve --tp 2", "nohup serve --tp starts no SGLang server"),
        ("python -m vllm --tp 2", "python -m vllm starts no SGLang server"),
        ("python", "python starts no SGLang server"),
        ("sglang generate --tp 2", "starts no SGLang server"),
        (f"{START} {QWEN} stray --tp 2", "--model-path takes one value, and 2 follow it"),
        (f"{START} stray --tp 2", "begins with stray, which is no flag"),
        (f"{START} {QWEN} --tp two", "--tp two: a whole number is needed"),
        (f"{START} {QWEN} --context-length {'9' * 400}G", "--context-length"),
        (f"{START} {QWEN} --mem-fraction-static much", "--mem-fraction-static much: a number is needed"),
        (f"{START} {QWEN} --tp", "--tp takes one value, and 0 follow it"),
        (f"{START} {QWEN} --enable-dp-attention=yes", "--enable-dp-attention takes no value"),
        (f"{START} --model 'open", "cannot be split into words"),
        (f"{START} {QWEN} --kv-cache-dtpye fp8_e4m3", "--kv-cache-dtpye is no flag of SGLang"),
        (f"{START} {QWEN} --tp-sise 4", "--tp-sise is no flag of SGLang"),
        (f"{START} {QWEN} --disable-cuda", "short for several flags"),
        (f"{START} {QWEN} --dry-run", "--dry-run is sgl-tune's own flag"),
        (f"{START} {QWEN} --tp 4 -q", "-q is no flag of SGLang"),
    ],
)
def test_what_no_server_would_take_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(command)


def test_a_command_without_a_model_is_refused() -> None:
    assert warm(*TARGET, "--", *START.split(), "--tp", "2").ends(2, "the server command names no model")


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
def test_own_arguments_stand_before_the_servers(words: list[str], own: list[str], command: list[str]) -> None:
    assert split_positionals(words) == (own, command)


def test_a_command_plans_what_the_same_flags_plan() -> None:
    flags = ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", "8", "--dp", "8", "--enable-dp-attention")
    target = (*TARGET, "--gpu", "sm100", "--cache-dir", "/caches")
    by_flags = plan(*flags, *target)
    by_command = plan(*target, "--", *START.split(), *flags)
    assert {**by_command, "notes": 0, "deployment": 0} == {**by_flags, "notes": 0, "deployment": 0}


def test_a_command_gets_no_dp_attention_it_did_not_ask_for() -> None:
    data = plan(*TARGET, "--gpu", "sm100", "--", *START.split(), "--model", "DeepSeek-V3", "--tp=8", "--dp=8")
    assert data["key_parts"][6] == "1" and len(data["groups"]) == 8


def test_the_commands_environment_decides_the_cache_dir() -> None:
    command = ("SGLANG_CACHE_DIR=~/mine", *START.split(), "--model", "Qwen3-30B-A3B", "--host", "::")
    data = plan(*TARGET, "--gpu", "sm90", "--", *command)
    assert data["cache_dir"] == "~/mine"
    beside = plan(*TARGET, "--gpu", "sm90", "--cache-dir", "/other", "--", *command)
    assert beside["cache_dir"] == "/other"


def test_a_server_flag_beside_a_command_is_refused() -> None:
    ran = warm("--tp", "8", *TARGET, "--", *START.split(), "--model", "Qwen3-30B-A3B")
    assert ran.code == 2 and "--tp is given beside a server command" in ran.err
