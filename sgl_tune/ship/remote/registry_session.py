"""Requests to a registry, with limits on time, length and redirects, and on who gets the password."""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any, BinaryIO

import requests
import urllib3

from sgl_tune.errors import WorkFailed
from sgl_tune.ship.remote.registry_name import Address, Origin, is_loopback, read_address
from sgl_tune.ship.remote.remotes import How, TooSlow, within
from sgl_tune.units import human_bytes

LARGEST_ANSWER = 4 << 20  # registries' own limit for a manifest
LEAST_UP = 8 << 20  # bytes sent in each --timeout
PIECE = 1 << 16
_MOST_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_LONGEST_WAIT = 60.0
_AGAIN = (408, 429, 500, 502, 503, 504)
_MOVED = (301, 302, 303, 307, 308)


class Broken(WorkFailed):
    """The registry or the connection failed. `again`: seconds until the next attempt; None if it would be
    useless."""

    def __init__(self, message: str, remedy: str | None = None, again: float | None = None) -> None:
        super().__init__(message, remedy)
        self.again = again


class Body:
    """A file that is uploaded, with a new --timeout for each `LEAST_UP` bytes."""

    def __init__(self, file: BinaryIO, size: int, progress: Callable[[int], None]) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._there = self._since = 0
        self._begin: Callable[[], None] = lambda: None

    def start(self, begin: Callable[[], None]) -> None:
        """Begin at the first byte, also in a second attempt."""
        self._file.seek(0)
        self._there = self._since = 0
        self._begin = begin

    def __len__(self) -> int:
        return self._size

    def read(self, most: int = -1) -> bytes:
        piece = self._file.read(most)
        self._there += len(piece)
        self._since += len(piece)
        if self._since >= LEAST_UP or not piece:
            self._since = 0
            self._begin()
            self._progress(self._there)
        return piece


class Session(requests.Session):
    """A connection to a registry, `home`. Only it and a server that it names get the password, and never
    after a redirect."""

    def __init__(self, home: Origin, how: How) -> None:
        super().__init__()
        self.home, self._how = home, how
        self._let_in: Origin | None = None
        self.headers.update({"User-Agent": "sgl-tune", "Accept-Encoding": "identity"})
        self.trust_env = not how.plain_http  # plain http must not leave this machine through a proxy
        self.auth = lambda request: request  # otherwise requests reads ~/.netrc
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    @contextmanager
    def letting_in(self, realm: Address) -> Iterator[None]:
        """Allow this address, which the registry named, to get the password within the block."""
        self._let_in = realm.origin
        try:
            yield
        finally:
            self._let_in = None

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return None, so that requests follows no redirect: it would read all of its body first."""
        return None

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        streamed = kwargs.pop("stream", False)
        address = self._read(url, "sends on to")
        with self.told(address.origin.authority), within(self._how.patience) as begin:
            if isinstance(kwargs.get("data"), Body):
                kwargs["data"].start(begin)
            response = self._followed(method, address, **kwargs)
            if not streamed:
                _keep(response, b"".join(_bounded(response)))
        _complain(response)
        return response

    @contextmanager
    def told(self, peer: str) -> Iterator[None]:
        """Turn an exception of a transfer into one line."""
        try:
            yield
        except (TooSlow, requests.Timeout, urllib3.exceptions.TimeoutError):
            words = f"{peer} does not answer, or too slowly, for {self._how.patience:g} s"
            raise Broken(words, "try again later; --timeout gives it longer", again=0) from None
        except requests.exceptions.SSLError as error:
            remedy = (
                "push and pull have --plain-http, for a registry on this machine"
                if "WRONG_VERSION" in _reason(error)
                else "REQUESTS_CA_BUNDLE=FILE names who signed it"
            )
            raise Broken(f"{peer}: no trusted TLS: {_reason(error)}", remedy) from None
        except (requests.exceptions.ChunkedEncodingError, urllib3.exceptions.ProtocolError):
            raise Broken(f"{peer} stopped before the end", "try again", again=0) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            if _is_unknown_name(error):
                raise Broken(f"{peer}: {_reason(error)}", "check its spelling") from None
            raise Broken(f"{peer}: {_reason(error)}", again=0) from None
        except ValueError as error:
            raise Broken(f"{peer} answers nonsense: {_reason(error)}") from None

    def check(self, url: str, what: str, base: Address | None = None) -> Address:
        """Refuse redirects from https to http, and from the internet into a private network."""
        there = self._read(url, what, base)
        self._check(there.origin, what)
        return there

    def is_home(self, response: requests.Response) -> bool:
        """Whether the registry itself answered, without a redirect."""
        there = read_address(str(response.url))
        return there is not None and there.origin == self.home and not response.history

    def _read(self, url: str, what: str, base: Address | None = None) -> Address:
        address = read_address(url, base)
        if address is None:
            raise Broken(f"{self.home.authority} {what} {url[:200]}, which is no address of the web")
        return address

    def _check(self, there: Origin, what: str) -> None:
        if there.scheme == "http" and not (self._how.plain_http and is_loopback(there.host)):
            raise Broken(f"{self.home.authority} {what} {there.authority} without TLS, which is refused")
        if there.host != self.home.host and _depth(there.host) > _depth(self.home.host):
            raise Broken(
                f"{self.home.authority} {what} {there.authority}, which lies inside this network: refused"
            )

    def _followed(self, method: str, address: Address, **kwargs: Any) -> requests.Response:
        headers = dict(kwargs.pop("headers", None) or {})
        if address.origin not in (self.home, self._let_in):
            headers = _without_password(headers)
        kwargs |= {"allow_redirects": False, "timeout": (_CONNECT_SECONDS, self._how.patience)}
        passed: list[requests.Response] = []
        while len(passed) <= _MOST_REDIRECTS:
            self._check(address.origin, "sends on to")
            response = super().request(method, str(address), headers=headers, stream=True, **kwargs)
            response.history = list(passed)
            target = response.headers.get("Location")
            if response.status_code not in _MOVED or not target:
                return response
            response.close()
            if method not in ("GET", "HEAD"):
                raise Broken(f"{self.home.authority} redirects a {method}, which is refused")
            address = self._read(target, "sends on to", address)
            headers = _without_password(headers)
            kwargs.pop("params", None)
            passed.append(response)
        raise Broken(f"{self.home.authority} redirects more than {_MOST_REDIRECTS} times")


def _reason(error: BaseException) -> str:
    """Return the innermost message, which is the system's own, without the libraries' names around it."""
    seen: list[BaseException] = []
    inner: object = error
    while isinstance(inner, BaseException) and inner not in seen:
        seen.append(inner)
        inner = getattr(inner, "reason", None) or inner.__cause__ or (inner.args[-1] if inner.args else None)
    text = str(getattr(seen[-1], "strerror", None) or seen[-1])
    return " ".join(text.split())[:300] or type(seen[-1]).__name__


def _is_unknown_name(error: BaseException) -> bool:
    cause = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(cause, urllib3.exceptions.NameResolutionError) and "Temporary" not in str(cause)


def _without_password(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() != "authorization"}


def _depth(host: str) -> int:
    """Return 0 for the internet, 1 for a private network, 2 for this machine and link-local addresses. A
    name that does not resolve is left to the proxy."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return 0
    addresses = [ipaddress.ip_address(str(where[0]).partition("%")[0]) for *_, where in found]
    return max(map(_depth_of, addresses), default=0)


def _depth_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return 2
    return 0 if address.is_global else 1


def _bounded(response: requests.Response) -> Iterator[bytes]:
    length = 0
    for piece in pieces(response):
        length += len(piece)
        if length > LARGEST_ANSWER:
            response.close()
            raise Broken(f"{peer(response)} answers with more than {human_bytes(LARGEST_ANSWER)}")
        yield piece


def pieces(response: requests.Response) -> Iterator[bytes]:
    """Yield the answer's bytes; refuse compression, because decompression could give endless data."""
    packed = response.headers.get("Content-Encoding", "identity").lower()
    if packed not in ("", "identity"):
        response.close()
        raise Broken(f"{peer(response)} answers in {packed[:40]!r}, which was not asked for")
    yield from response.iter_content(PIECE)


def _keep(response: requests.Response, body: bytes) -> None:
    """Store a body in the response as requests itself does."""
    response._content, response._content_consumed = body, True


def _complain(response: requests.Response) -> None:
    if response.status_code not in _AGAIN:
        return
    wait = response.headers.get("Retry-After", "")
    seconds = float(wait[:15]) if wait.isascii() and wait.isdigit() else 0.0
    response.close()
    words = f"{peer(response)} answers {response.status_code}"
    if seconds > _LONGEST_WAIT:
        raise Broken(f"{words}, and asks for a pause of {seconds:,.0f} s", "try again then")
    raise Broken(words, "try again later", again=seconds)


def peer(response: requests.Response) -> str:
    return urllib3.util.parse_url(str(response.url)).netloc or ""
