"""What `docker login` kept, as Docker and its helpers write it, and what is no user and password."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oras")

from sgl_tune.errors import UsageError
from sgl_tune.ship.remote import registry_client as docker_login
from sgl_tune.ship.remote.registry_client import Auth
from sgl_tune.ship.remote.registry_name import Name
from sgl_tune.ship.remote.remotes import How
from tests.programs import program

AUTH = base64.b64encode(b"carol:a:b").decode()


def login(environ: dict[str, str]) -> str | None:
    return Auth(Name("localhost:5000", "a"), How(), environ)._basic_auth


def kept(folder: Path, content: Any) -> str | None:
    (folder / "config.json").write_text(json.dumps(content))
    return login({"DOCKER_CONFIG": str(folder)})


def test_a_login_written_in_a_file_is_used(tmp_path: Path) -> None:
    assert kept(tmp_path, {"auths": {"localhost:5000": {"auth": AUTH}}}) == AUTH
    environ = {"DOCKER_CONFIG": "/nowhere", "REGISTRY_AUTH_FILE": str(tmp_path / "config.json")}
    assert login(environ) == AUTH


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"auths": {"localhost": {"auth": AUTH}}},
        {"auths": {"localhost:5000": {}}},
        {"auths": [7]},
        {"auths": {"localhost:5000": 7}, "credHelpers": {"localhost:5000": 7}, "credsStore": 7},
    ],
)
def test_a_file_without_a_login_for_the_registry_gives_none(content: Any, tmp_path: Path) -> None:
    assert kept(tmp_path, content) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"credsStore": "nobody-has-this"}, "localhost:5000, is not here"),
        ({"credsStore": "../../bin/sh"}, "is not here"),
        ({"credHelpers": {"localhost:5000": "odd"}}, "gives no user and password"),
        ({"credHelpers": {"localhost:5000": "slow"}}, "gave no answer in 0.2 s"),
        ([], "not a JSON object"),
    ],
)
def test_a_broken_login_is_refused(
    content: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "0.2 s" in words:
        monkeypatch.setattr(docker_login, "HELPER_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, script in (("odd", "echo [7]"), ("slow", "exec sleep 20")):
        program(tmp_path / f"docker-credential-{name}", script)
    with pytest.raises(UsageError, match=words):
        kept(tmp_path, content)


def test_no_helper_of_the_working_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "docker-credential-here", "touch ran")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f":{os.environ['PATH']}"):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(UsageError, match="is not here"):
            kept(tmp_path, {"credsStore": "here"})
    assert not (tmp_path / "ran").exists()


def test_a_helper_without_a_login_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program(tmp_path / "docker-credential-none", "echo credentials not found in native keychain\nexit 1")
    assert kept(tmp_path, {"credsStore": "none"}) is None
