"""Who asks a registry: the login that docker kept, and oras's token dance with a realm that was checked."""

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

import requests
from oras.auth.token import TokenAuth
from oras.auth.utils import get_basic_auth, parse_auth_header

from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object
from sgl_tune.ship.remote.registry_name import Name
from sgl_tune.ship.remote.registry_session import Broken, Session, peer
from sgl_tune.ship.remote.remotes import How

_TOKEN = re.compile(r"[!-~]{1,16384}")
HELPER_SECONDS = 30
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BY_TOKEN = "<token>"  # what a helper gives as the name of whom only an identity token lets in
_MOST_SAID = 1 << 16


class Auth(TokenAuth):
    session: Session

    def __init__(self, name: Name, login: Login | None, how: How) -> None:
        super().__init__()
        self._name, self._login, self._how = name, login, how
        self._header: dict[str, str] = {}
        self._told = False
        if login:
            self.set_basic_auth(*login)

    def get_auth_header(self) -> dict[str, str]:
        return self._header

    def authenticate_request(
        self, original: requests.Response, headers: dict[str, str], refresh: bool = False
    ) -> tuple[dict[str, str], bool]:
        """oras would answer `Basic` with a request for a token, and an expired token with itself."""
        asked = original.headers.get("Www-Authenticate") or ""
        sent = str(original.request.headers.get("Authorization", "")).partition(" ")[0]
        kind = asked.partition(" ")[0].lower() if original.status_code == 401 else ""
        original.close()
        if not self.session.is_home(original):
            where = peer(original)
            raise Broken(f"{self._name.registry} sends on to {where}, which wants a password: it gets none")
        if kind == "basic" and self._login and sent != "Basic":
            self.token = get_basic_auth(*self._login)
            self._header = {"Authorization": f"Basic {self.token}"}
        elif kind == "bearer":
            self.token = self._token(asked)
            self._header = {"Authorization": f"Bearer {self.token}"}
        else:
            raise self.refusal()
        return {**headers, **self._header}, True

    def refusal(self) -> UsageError:
        registry = self._name.registry
        if self._login is None:
            return UsageError(
                f"{registry} wants a user and a password for {self._name.repository}",
                f"`docker login {registry}` keeps them",
            )
        return UsageError(
            f"{registry} does not let {self._login.user} do that to {self._name.repository}",
            f"`docker login {registry}` as somebody who may",
        )

    def _token(self, asked: str) -> str:
        header = parse_auth_header(asked)
        if not header.realm:
            raise Broken(f"{self._name.registry} wants a token and does not say from where")
        realm = self.session.check(header.realm, "has passwords looked at by")
        header.realm, where = str(realm), realm.origin.authority
        if self._login and realm.origin != self.session.home and not self._told:
            self._how.warn(f"{self._name.registry} names {where} to look at passwords: yours is sent there")
            self._told = True
        try:
            with self.session.letting_in(realm):
                token = self.request_token(header) if self._login else self.request_anonymous_token(header)
        except (ValueError, RecursionError, AttributeError):  # no JSON, and JSON that is no object
            raise Broken(f"{where} gives no token for {self._name.registry}") from None
        if token is None:
            raise self.refusal()
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise Broken(f"{where} gives no token for {self._name.registry}")
        return token


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
