"""--config FILE of a server command, read and merged as SGLang does."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.server.releases import release_named
from sgl_tune.deployment.server_command import parse_server_command
from sgl_tune.errors import UsageError

START = "python -m sglang.launch_server"
OLD = release_named("0.5.17").release


LAUGHS = "a0: &a0 [1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)  # fmt: skip


def _file(folder: Path, text: str, name: str = "server.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_the_line_wins_over_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "model-path: m\ntp-size: 8\nenable-dp-attention: true\ndp-size: 8\n")
    asked = parse_server_command([f"{START} --tp 4 --config {file}"], OLD).asked
    assert (asked.model_path, asked.tp_size, asked.dp_size) == ("m", 4, 8) and asked.enable_dp_attention


def test_a_deprecated_switch_is_refused_in_a_file_as_its_release_does(tmp_path: Path) -> None:
    file = _file(tmp_path, "model-path: m\nenable-dp-attention: true\n")
    with pytest.raises(UsageError, match=r"server\.yaml: .*Unsupported config option 'enable_dp_attention'"):
        parse_server_command([f"{START} --config {file}"])


def test_serve_takes_its_model_before_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "model-path: other\ntp: 2\n")
    asked = parse_server_command([f"sglang serve m --config {file}"]).asked
    assert (asked.model_path, asked.tp_size) == ("m", 2)


def test_values_are_yamls_own(tmp_path: Path) -> None:
    """1_024 and 0x10 are numbers to YAML 1.1, `on` is true, and an alias is what it stands for."""
    text = "model-path: &m org/m\nserved-model-name: *m\nmax-running-requests: 1_024\nenable-metrics: on\n"
    line = parse_server_command([f"{START} --config {_file(tmp_path, text, 'a.YML')}"])
    assert line.asked.max_running_requests == 1024 and "--enable-metrics" in line.unread.without_effect


def test_a_config_that_is_one_word_is_not_opened_and_said(tmp_path: Path) -> None:
    file = _file(tmp_path, "tp-size: 8\n")
    line = parse_server_command([f"{START} --model m --config={file}"])
    assert line.asked.tp_size == 1 and any("two words" in note for note in line.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "holds a list"),
        ("model-path: [\n", "is not YAML"),
        ("model-path: !!python/object:os.x {}\n", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "2 documents|is not YAML"),
        ("1: 2\n", "the key 1 is no name of a flag"),
        ("tpsize: 8\nmodel-path: m\n", "--tpsize"),
        ("model-path: m\ntp-size: two\n", "invalid int value"),
        ("model-path: m\nlora-paths: [a]\n", "Unsupported config option 'lora_paths'"),
        (
            "model-path: m\njson-model-override-args: {a: 2001-01-01}\n",
            "config option 'json_model_override_args'",
        ),
        (f"model-path: m\ntp-size: 0x{'F' * 9000}\n", "config option 'tp_size'"),
        ("a: " + "[" * 5000, "cannot be read|is not YAML"),
        (LAUGHS, "more than 10000 values"),
        ("#" * 70_000, "more than such a file can hold"),
    ],
)
def test_what_sglang_would_not_take_is_refused_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_server_command([f"{START} --config {_file(tmp_path, text)}"], OLD)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--config server.json", "SGLang reads .yaml and .yml alone"),
        ("--config", "names no file"),
        ("--config a.yaml --config b.yaml", "--config twice"),
    ],
)
def test_a_config_that_sglang_would_not_open_is_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_server_command([f"{START} --model m {words}"])


def test_a_config_that_is_not_here_is_named_as_the_servers() -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml cannot be read") as caught:
        parse_server_command([f"{START} --model m --config nowhere.yaml"])
    assert str(caught.value.remedy).startswith("it is the server command's --config: ")


def test_a_config_within_a_container_is_read_where_it_is_mounted(tmp_path: Path) -> None:
    _file(tmp_path, "tp-size: 8\n")
    run = "a/b python3 -m sglang.launch_server --model m --config /conf/server.yaml"
    assert parse_server_command([f"docker run -v {tmp_path}:/conf {run}"]).asked.tp_size == 8
    with pytest.raises(UsageError, match="lies inside of the container"):
        parse_server_command([f"docker run {run}"])
