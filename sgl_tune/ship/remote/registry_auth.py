"""Log in to a registry with docker's stored login. oras exchanges it for a token; its realm is checked."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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
_MOST_SAID = 1 << 16


class Auth(TokenAuth):
    session: Session

    def __init__(self, name: Name, how: How, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._name, self._how = name, how
        self._header: dict[str, str] = {}
        self._told = False
        self._basic_auth: str | None = None
        self._auth_config = _docker_config(environ)
        self._load_auth(name.registry)

    @property
    def user(self) -> str | None:
        """Return the logged-in user, or None if the login is not valid base64."""
        try:
            return base64.b64decode(self._basic_auth or "").decode().partition(":")[0] or None
        except ValueError:
            return None

    def _get_auth_from_creds_store(self, suffix: str, hostname: str) -> str | None:
        """Run docker's credential helper. oras would run one from the current folder and wait forever."""
        program = shutil.which(f"docker-credential-{suffix}") if _HELPER.fullmatch(suffix) else None
        if program is None or not Path(program).is_absolute():
            told = f"docker-credential-{suffix}, which keeps the password for {hostname}, is not here"
            raise UsageError(told, "install it, or log in without it")
        try:
            done = subprocess.run(
                [program, "get"], input=hostname.encode(), capture_output=True, timeout=HELPER_SECONDS
            )
            if done.returncode:
                return None
            login = json.loads(done.stdout[:_MOST_SAID])
            return str(get_basic_auth(login["Username"], login["Secret"]))
        except subprocess.TimeoutExpired:
            what = f"{program} gave no answer in {HELPER_SECONDS} s"
            raise UsageError(what, "it may wait for a password") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            what = f"{program} gives no user and password for {hostname}"
            raise UsageError(what, "log in again") from None

    def get_auth_header(self) -> dict[str, str]:
        return self._header

    def authenticate_request(
        self, original: requests.Response, headers: dict[str, str], refresh: bool = False
    ) -> tuple[dict[str, str], bool]:
        """Return the headers that authenticate. oras would answer `Basic` with a request for a token, and
        would send an expired token again."""
        asked = original.headers.get("Www-Authenticate") or ""
        sent = str(original.request.headers.get("Authorization", "")).partition(" ")[0]
        kind = asked.partition(" ")[0].lower() if original.status_code == 401 else ""
        original.close()
        if not self.session.is_home(original):
            where = peer(original)
            raise Broken(f"{self._name.registry} sends on to {where}, which wants a password: it gets none")
        if kind == "basic" and self._basic_auth and sent != "Basic":
            self.token = self._basic_auth
            self._header = {"Authorization": f"Basic {self.token}"}
        elif kind == "bearer":
            self.token = self._token(asked)
            self._header = {"Authorization": f"Bearer {self.token}"}
        else:
            raise self.refusal()
        return {**headers, **self._header}, True

    def refusal(self) -> UsageError:
        registry = self._name.registry
        if self._basic_auth is None:
            return UsageError(
                f"{registry} wants a user and a password for {self._name.repository}",
                f"`docker login {registry}` keeps them",
            )
        return UsageError(
            f"{registry} does not let {self.user} do that to {self._name.repository}",
            f"`docker login {registry}` as somebody who may",
        )

    def _token(self, asked: str) -> str:
        header = parse_auth_header(asked)
        if not header.realm:
            raise Broken(f"{self._name.registry} wants a token and does not say from where")
        realm = self.session.check(header.realm, "has passwords looked at by")
        header.realm, where = str(realm), realm.origin.authority
        if self._basic_auth and realm.origin != self.session.home and not self._told:
            self._how.warn(f"{self._name.registry} names {where} to look at passwords: yours is sent there")
            self._told = True
        try:
            with self.session.letting_in(realm):
                asked_for = self.request_token if self._basic_auth else self.request_anonymous_token
                token = asked_for(header)
        except (ValueError, RecursionError, AttributeError):  # no JSON, or no JSON object
            raise Broken(f"{where} gives no token for {self._name.registry}") from None
        if token is None:
            raise self.refusal()
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise Broken(f"{where} gives no token for {self._name.registry}")
        return token


def _docker_config(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read what `docker login` keeps, where oras looks for it, without members of the wrong type."""
    folder = environ.get("DOCKER_CONFIG")
    docker = Path(folder or Path("~/.docker").expanduser()) / "config.json"
    path = Path(environ.get("REGISTRY_AUTH_FILE") or docker)  # the variable of podman, skopeo and buildah
    kept = read_object(path, "`docker login` writes it") if path.exists() else {}
    auths, helpers, store = (kept.get(name) for name in ("auths", "credHelpers", "credsStore"))
    return {
        "auths": {host: one for host, one in _items(auths) if isinstance(one, dict)},
        "credHelpers": {host: one for host, one in _items(helpers) if isinstance(one, str)},
        "credsStore": store if isinstance(store, str) else None,
    }


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()
