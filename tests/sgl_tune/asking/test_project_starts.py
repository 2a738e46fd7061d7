"""A deployment of sgl-tune.toml is asked of a server like any command."""

from pathlib import Path

import pytest

from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError

FILE = """
[defaults]
sglang-version = "0.5.23"

[deployments.chat]
model-path = "Qwen/Qwen3-30B-A3B"
tp = 4

[deployments.reason]
command = "sglang serve zai-org/GLM-5.1 --tp 8 --ep 8"
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sgl-tune.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)


def test_a_deployment_by_flags_is_its_flags_with_those_of_the_command_line() -> None:
    found = ByServer(ServerFlags.of(gpu="b200"), deployment="sgl-tune.toml:chat").one()
    assert found.deployment is None and found.command == () and found.names_a_start
    assert (found.flags.model_path, found.flags.tp) == ("Qwen/Qwen3-30B-A3B", 4)
    assert (found.flags.target.gpu, found.flags.target.sglang_version) == ("b200", "0.5.23")


def test_a_deployment_by_a_command_is_that_command() -> None:
    found = ByServer(ServerFlags(), deployment="sgl-tune.toml:reason").one()
    assert found.command == ("sglang serve zai-org/GLM-5.1 --tp 8 --ep 8",)
    assert found.flags.model_path is None


def test_of_several_one_must_be_named() -> None:
    with pytest.raises(UsageError, match="several deployments: chat, reason"):
        ByServer(ServerFlags()).one()


def test_a_model_or_a_command_that_is_given_needs_no_project_file() -> None:
    for by in (ByServer(ServerFlags.of(model_path="m")), ByServer(ServerFlags(), ("sglang",))):
        assert by.one() == by
