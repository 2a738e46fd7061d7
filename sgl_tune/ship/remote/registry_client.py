"""One repository of a registry, through oras. Requests are tried again, answers are checked. The login is
docker's stored one: oras exchanges it for a token, whose realm is checked."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import requests
from oras.auth.token import TokenAuth
from oras.auth.utils import get_basic_auth, parse_auth_header
from oras.logger import logger
from oras.provider import Registry

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.reading import NoObject, object_of, read_object
from sgl_tune.ship.remote.registry_image import IMAGE, INDEX
from sgl_tune.ship.remote.registry_name import DIGEST, Address, Name, is_loopback, read_address
from sgl_tune.ship.remote.registry_session import Broken, Session, peer
from sgl_tune.ship.remote.remotes import Absent, How

ATTEMPTS = 5
PAUSE_SECONDS = 0.5
_DOCKER = "application/vnd.docker.distribution.manifest"
KINDS = {IMAGE: IMAGE, INDEX: INDEX, f"{_DOCKER}.v2+json": IMAGE, f"{_DOCKER}.list.v2+json": INDEX}
_MOST_ATTEMPTS = 100
_MOST_PAGES = 20
_SILENT = 100
Done = TypeVar("Done")
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


class Document(NamedTuple):
    """A manifest or an index as bytes, because their digest is its name."""

    raw: bytes
    kind: str
    content: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest_of(self.raw)


class _Oras(Registry):
    """oras without its own retries, which take two minutes for any error."""

    def do_request(self, *args: Any, **kwargs: Any) -> requests.Response:
        answer: requests.Response = Registry.do_request.__wrapped__(self, *args, **kwargs)
        return answer


class Repository:
    def __init__(self, name: Name, how: How) -> None:
        home = name.origin("http" if how.plain_http else "https")
        if how.plain_http and not is_loopback(home.host):
            raise UsageError(
                f"--plain-http: {home.host} is not this machine", "a registry elsewhere needs TLS"
            )
        logger.set_level(_SILENT)
        self.name, self.how = name, how
        self._oras = _Oras(name.registry, how.plain_http)
        self._oras.session = self.session = Session(home, how)
        self._oras.auth = self.auth = Auth(name, how)
        self.auth.session = self.session
        self.auth._tls_verify = self._oras._tls_verify

    def url(self, path: str) -> str:
        return f"{self.session.home}/v2/{self.name.repository}/{path}"

    def address(self, url: str, what: str, base: str) -> Address:
        """Return the checked address to which the registry redirects an answer of `base`."""
        return self.session.check(url, what, read_address(base))

    def ask(self, method: str, url: str, *allowed: int, **kwargs: Any) -> requests.Response:
        """Send one request; raise the registry's own words for a status that is not in `allowed`."""
        answer = self._oras.do_request(url, method, **kwargs)
        if answer.status_code in allowed:
            return answer
        if answer.status_code == 401:
            raise self.auth.refusal()
        words = own_words(answer) if answer.raw.closed or not kwargs.get("stream") else ""
        told = f"{self.name.registry} answers {answer.status_code} to a {method}{words}"
        raise Absent(told) if answer.status_code == 404 else Broken(told)

    def again(self, work: Callable[[], Done], done: Callable[[], int] = lambda: 0) -> Done:
        """Do the work, and try again after a failure. Failed attempts count only if `done` has not grown."""
        failed, before = 0, done()
        for _ in range(_MOST_ATTEMPTS):
            try:
                return work()
            except Broken as error:
                failed = 1 if done() > before else failed + 1
                before = done()
                if error.again is None or failed == ATTEMPTS:
                    raise
                pause = max(error.again, PAUSE_SECONDS * 2 ** (failed - 1))
                self.how.note(f"{error.message}; once more in {pause:g} s")
                time.sleep(pause)
        return work()

    def document(self, reference: str) -> Document:
        headers = {"Accept": ", ".join(KINDS)}
        url = self.url(f"manifests/{reference}")
        answer = self.again(lambda: self.ask("GET", url, 200, headers=dict(headers)))
        raw = answer.content
        if DIGEST.fullmatch(reference) and digest_of(raw) != reference:
            raise CheckFailed(f"{self.name.registry} gives something else for {reference}: {digest_of(raw)}")
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in KINDS:
            raise CheckFailed(f"{self.name.registry} gives {kind[:80] or 'nothing known'} for a manifest")
        content = json_object(raw, f"the manifest {reference}")
        if content.get("mediaType", kind) != kind:
            raise CheckFailed(f"the manifest {reference} is called {kind}, and says otherwise itself")
        return Document(raw, KINDS[kind], content)

    def put_document(self, raw: bytes, kind: str, reference: str) -> None:
        url, headers = self.url(f"manifests/{reference}"), {"Content-Type": kind}
        self.again(lambda: self.ask("PUT", url, 201, 200, 202, data=raw, headers=dict(headers)))

    def tags(self) -> list[str]:
        """Return the tags, up to a limited number of pages."""
        url, found = self.url("tags/list"), list[str]()
        for _ in range(_MOST_PAGES):
            answer = self.again(lambda url=url: self.ask("GET", url, 200))  # type: ignore[misc]
            told = json_object(answer.content, "the list of tags").get("tags")
            found += [tag for tag in told if isinstance(tag, str)] if isinstance(told, list) else []
            following = answer.links.get("next", {}).get("url")
            if not following:
                break
            url = str(self.address(following, "continues its list of tags at", url))
        return found


def digest_of(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def json_object(raw: bytes, what: str) -> dict[str, Any]:
    try:
        return object_of(raw)
    except NoObject as why:
        raise CheckFailed(f"{what} {why}") from None


def own_words(answer: requests.Response) -> str:
    try:
        first = answer.json()["errors"][0]
        return f": {str(first['message'])[:200]}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
