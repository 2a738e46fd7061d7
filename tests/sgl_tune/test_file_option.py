"""`-f`: what starts the server, in a file, and which part of it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_tune.deployment.file_option import started_by
from sgl_tune.deployment.launch import Launch, launch_of
from sgl_tune.errors import UsageError

COMPOSE = """services:
  sglang:
    image: lmsysorg/sglang:v0.5.23
    entrypoint: python3 -m sglang.launch_server
    command: --model-path /models/m --tp 2
    volumes: ["./cache:/cache", "../models:/models", "/data:/data"]
"""


def _of(path: Path | str) -> Launch:
    return launch_of(started_by(str(path), None)[0])


def test_a_compose_files_folders_count_from_its_own(tmp_path: Path) -> None:
    file = tmp_path / "m" / "compose.yaml"
    file.parent.mkdir()
    file.write_text(COMPOSE)
    read, pasted = _of(file).container, launch_of([COMPOSE]).container
    assert read is not None and pasted is not None
    assert read.outside("/cache/x") == f"{tmp_path}/m/cache/x"
    assert read.outside("/models") == f"{tmp_path}/models" and read.outside("/data") == "/data"
    assert pasted.outside("/cache") == "cache" and pasted.outside("/models") == "../models"


def test_a_message_names_the_file_and_what_may_stand_there(tmp_path: Path) -> None:
    file = tmp_path / "start.yaml"
    with pytest.raises(UsageError) as missing:
        started_by(str(file), None)
    assert "standard input" in (missing.value.remedy or "")
    file.write_text("kind: Service\nspec: {}\n")
    with pytest.raises(UsageError, match=f"the manifest in {file} holds no command"):
        _of(file)
