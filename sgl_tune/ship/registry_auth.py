"""How a registry is shown who asks: oras's token dance, with an end, and a realm that was looked at first."""

from __future__ import annotations

import re

import requests
from oras.auth.token import TokenAuth
from oras.auth.utils import get_basic_auth, parse_auth_header

from sgl_tune.errors import UsageError
from sgl_tune.ship.docker_login import Login
from sgl_tune.ship.registry_name import Name
from sgl_tune.ship.registry_session import Broken, Session, peer
from sgl_tune.ship.remotes import How

_TOKEN = re.compile(r"[!-~]{1,16384}")


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
