"""Addresses that a registry names: what is read as one, every library reads as the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from sgl_tune.ship.remote.registry_name import PORTS, Address, Origin, read_address
from tests.fuzz.mutate import mutated, of_bytes
from tests.fuzz.parser import Parser, Wrong

_BASE = "https://registry.local:5000/v2/caches/glm/blobs/uploads/1?_state=a%3D"
_SEEDS = (
    b"https://store.local/blob?X-Signature=ab%2Fc&expires=1",
    b"HTTPS://Store.Local:443/a/../b/./c",
    b"http://127.0.0.1:5000/x",
    b"https://[::1]:5000/x",
    b"https://[::ffff:10.0.0.1]/x",
    b"//store.local:8443/x",
    b"/v2/caches/glm/blobs/uploads/2?_state=b",
    b"?page=2&last=x",
    b"uploads/3",
    b"https://thief.local\\@registry.local:5000/x",
)
_PIECES = (
    *("\\", "@", "#", "?", "/", "//", ":", "::", "[", "]", "%", "%2f", "%40", "%5c", "%00", ".", "..", "_"),
    *("https:", "http:", "ftp://", "file:///", "x:", " ", "\t", "\n", "\0", "\u2044", "\uff0f", "\u00e9"),
    *("registry.local:5000", "thief.local", ":0", ":443", ":80", ":00443", ":65536", ":+1", "0x7f.1"),
    *("user:pw@", "[::1]", "[fe80::1%25eth0]", "&", "=", ";", "'", '"', "<", ">", "|", "^", "`", "{", "}"),
    *("2130706433", "\u3002", "-", "~", "*"),
)  # fmt: skip


class _Made(NamedTuple):
    text: str
    is_relative: bool


def _make(random: Random) -> _Made:
    if random.random() < 0.3:
        text = mutated(_SEEDS, random, of_bytes).decode("latin-1")
    else:
        text = random.choice(_SEEDS).decode()
        for _ in range(random.choice((1, 1, 2, 3))):
            at, piece = random.randrange(len(text) + 1), random.choice(_PIECES)
            text = text[:at] + piece + text[at + random.choice((0, 0, 1, len(piece))) :]
    return _Made(text, random.random() < 0.6)


def _read(made: _Made, folder: Path) -> None:
    base = read_address(_BASE)
    address = read_address(made.text, base if made.is_relative else None)
    if address is None:
        return
    if read_address(str(address)) != address:
        raise Wrong("what is handed on is read as something else", str(address)[:200])
    named = urljoin(_BASE, made.text) if made.is_relative else made.text
    for text in (named, str(address)):
        for reader, found in _readings(text).items():
            if found != address.origin:
                raise Wrong(f"{reader} reads another origin", f"{text[:200]!r}: {found}")
    _check_target(address)


def _readings(text: str) -> dict[str, Origin]:
    parts, url = urlsplit(text), urllib3.util.parse_url(text)
    prepared = urlsplit(str(requests.Request("GET", text).prepare().url))
    return {
        "urllib.parse": _origin(parts.scheme, parts.hostname, parts.port),
        "urllib3": _origin(url.scheme, url.host, url.port),
        "requests": _origin(prepared.scheme, prepared.hostname, prepared.port),
        "a browser": _origin(*_as_browser(text)),
    }


def _as_browser(text: str) -> tuple[str, str, int | None]:
    """To which a backslash is a slash, and the last @ before the path ends the user."""
    scheme, _, rest = text.replace("\\", "/").partition(":")
    host = rest.lstrip("/").partition("/")[0].partition("?")[0].partition("#")[0].rpartition("@")[2]
    name, colon, port = host.rpartition(":")
    has_port = colon and port.isdigit()
    return scheme.lower(), (name if has_port else host).lower(), int(port) if has_port else None


def _origin(scheme: str | None, host: str | None, port: int | None) -> Origin:
    return Origin(str(scheme), str(host).strip("[]"), port or PORTS.get(str(scheme), 0))


def _check_target(address: Address) -> None:
    if not address.target.startswith("/") or set(address.target) & set("\\# \r\n\t\0"):
        raise Wrong("a target that is none", address.target[:200])


PARSER = Parser(_make, _read)
