"""What `docker login` kept, as Docker and its helpers write it, and what is no user and password."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.ship.remote import registry_auth as docker_login
from sgl_tune.ship.remote.registry_auth import Login, login_for

AUTH = base64.b64encode(b"carol:a:b").decode()


def kept(folder: Path, content: Any) -> Login | None:
    (folder / "config.json").write_text(json.dumps(content))
    return login_for("localhost:5000", {"DOCKER_CONFIG": str(folder)})


@pytest.mark.parametrize(
    "auths",
    [
        {"localhost:5000": {"auth": AUTH}},
        {"https://localhost:5000/v1/": {"auth": AUTH}},
        {"localhost:5000": {"username": "carol", "password": "a:b"}},
    ],
)
def test_what_is_written(auths: Any, tmp_path: Path) -> None:
    assert kept(tmp_path, {"auths": auths}) == Login("carol", "a:b")
    environ = {"DOCKER_CONFIG": "/nowhere", "REGISTRY_AUTH_FILE": str(tmp_path / "config.json")}
    assert login_for("localhost:5000", environ) == Login("carol", "a:b")


@pytest.mark.parametrize(
    "content",
    [{}, {"auths": {"localhost": {"auth": AUTH}}}, {"auths": {"localhost:5000": {}}}, {"auths": [7]}],
)
def test_nothing_is_known(content: Any, tmp_path: Path) -> None:
    assert kept(tmp_path, content) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"auths": {"localhost:5000": {"auth": "!"}}}, "no user and password"),
        (
            {"auths": {"localhost:5000": {"auth": base64.b64encode(b"carol").decode()}}},
            "no user and password",
        ),
        ({"auths": {"localhost:5000": {"auth": AUTH, "identitytoken": "x"}}}, "identity token"),
        ({"credsStore": "nobody-has-this"}, "docker-credential-nobody-has-this, which is not here"),
        ({"credsStore": "../../bin/sh"}, "which is not here"),
        ({"credHelpers": {"localhost:5000": "odd"}}, "gives no user and password"),
        ({"credHelpers": {"localhost:5000": "token"}}, "identity token"),
        ({"credHelpers": {"localhost:5000": "slow"}}, "gave no answer in 0.2 s"),
        ([], "not a JSON object"),
    ],
)
def test_what_is_no_login(content: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "0.2 s" in words:
        monkeypatch.setattr(docker_login, "HELPER_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    token = json.dumps({"Username": "<token>", "Secret": "x"})
    for name, script in (("odd", "echo [7]"), ("token", f"echo '{token}'"), ("slow", "exec sleep 20")):
        helper = tmp_path / f"docker-credential-{name}"
        helper.write_text(f"#!/bin/sh\n{script}\n")
        helper.chmod(0o755)
    with pytest.raises(UsageError, match=words):
        kept(tmp_path, content)


def test_no_helper_of_the_working_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-here"
    helper.write_text("#!/bin/sh\ntouch ran\n")
    helper.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f":{os.environ['PATH']}"):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(UsageError, match="is not here"):
            kept(tmp_path, {"credsStore": "here"})
    assert not (tmp_path / "ran").exists()


def test_a_helper_that_knows_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    helper = tmp_path / "docker-credential-none"
    helper.write_text("#!/bin/sh\necho credentials not found in native keychain\nexit 1\n")
    helper.chmod(0o755)
    assert kept(tmp_path, {"credsStore": "none"}) is None
