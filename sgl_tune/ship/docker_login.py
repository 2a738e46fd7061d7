"""The user and the password that `docker login` kept for a registry: in its config.json, or with a helper."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object

HELPER_SECONDS = 30
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BY_TOKEN = "<token>"  # what a helper gives as the name of whom only an identity token lets in
_MOST_SAID = 1 << 16


class Login(NamedTuple):
    user: str
    password: str


def login_for(registry: str, environ: Mapping[str, str] = os.environ) -> Login | None:
    folder = environ.get("DOCKER_CONFIG")
    docker = Path(folder or Path("~/.docker").expanduser()) / "config.json"
    path = Path(environ.get("REGISTRY_AUTH_FILE") or docker)  # as podman, skopeo and buildah call theirs
    if not path.exists():
        return None
    config = read_object(path, "`docker login` writes it")
    helpers = _object(config.get("credHelpers"))
    if isinstance(named := helpers.get(registry), str):
        return _asked_helper(named, registry, path)
    written = _written(_object(config.get("auths")), registry, path)
    store = config.get("credsStore")
    return written or (_asked_helper(store, registry, path) if isinstance(store, str) else None)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _written(auths: dict[str, Any], registry: str, path: Path) -> Login | None:
    """The key is the host, or an old client's URL of it."""
    entry = next((_object(auths[key]) for key in auths if _host(key) == registry), {})
    if entry.get("identitytoken"):
        raise _no_identity_token(registry, path)
    if not isinstance(entry.get("auth"), str) or not entry["auth"]:
        name, password = entry.get("username"), entry.get("password")
        return Login(name, password) if isinstance(name, str) and isinstance(password, str) else None
    user = colon = secret = ""
    with suppress(binascii.Error, ValueError):
        user, colon, secret = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    if not colon:
        raise UsageError(
            f"{path}: what it holds for {registry} is no user and password", "`docker login` again"
        )
    return Login(user, secret.rstrip("\0"))


def _host(key: str) -> str:
    return urlsplit(key).netloc if "://" in key else key.partition("/")[0]


def _asked_helper(name: str, registry: str, path: Path) -> Login | None:
    program = shutil.which(f"docker-credential-{name}") if _HELPER.fullmatch(name) else None
    if program is None or not Path(program).is_absolute():
        raise UsageError(
            f"{path} names docker-credential-{name}, which is not here", "install it, or log in without"
        )
    try:
        done = subprocess.run(
            [program, "get"], input=registry.encode(), capture_output=True, timeout=HELPER_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{program} gave no answer in {HELPER_SECONDS} s", "it may wait for a password"
        ) from None
    if done.returncode:
        return None
    try:
        told = _object(json.loads(done.stdout[:_MOST_SAID]))
    except (ValueError, RecursionError):
        told = {}
    user, password = told.get("Username"), told.get("Secret")
    if not isinstance(user, str) or not isinstance(password, str):
        raise UsageError(f"{program} gives no user and password for {registry}", "log in again")
    if user == _BY_TOKEN:
        raise _no_identity_token(registry, path)
    return Login(user, password)


def _no_identity_token(registry: str, path: Path) -> UsageError:
    return UsageError(
        f"{path}: for {registry} it has an identity token, which is not exchanged here",
        "log in with a user and a password, or an access token in place of one",
    )
