"""One repository of a registry, through oras. Requests are tried again, answers are checked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import requests
from oras.logger import logger
from oras.provider import Registry

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.reading import NoObject, object_of
from sgl_tune.ship.remote.registry_auth import Auth
from sgl_tune.ship.remote.registry_image import IMAGE, INDEX
from sgl_tune.ship.remote.registry_name import DIGEST, Address, Name, is_loopback, read_address
from sgl_tune.ship.remote.registry_session import Broken, Session
from sgl_tune.ship.remote.remotes import Absent, How

ATTEMPTS = 5
PAUSE_SECONDS = 0.5
_DOCKER = "application/vnd.docker.distribution.manifest"
KINDS = {IMAGE: IMAGE, INDEX: INDEX, f"{_DOCKER}.v2+json": IMAGE, f"{_DOCKER}.list.v2+json": INDEX}
_MOST_ATTEMPTS = 100
_MOST_PAGES = 20
_SILENT = 100
Done = TypeVar("Done")


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
