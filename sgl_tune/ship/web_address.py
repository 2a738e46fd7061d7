"""An address of the web, read once. What two libraries could read in two ways is no address here, so that the
host that was checked is the host that is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urljoin

PORTS = {"http": 80, "https": 443}
_PLAIN = re.compile(r"[!-~]{1,16384}")
_SHAPE = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9._-]{0,252})|\[(?P<v6>[0-9a-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<target>/[^\\#]*)?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Origin:
    """To whom a password belongs. `host` is in lower case, an IPv6 address without its brackets."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """`target` is the path and the query."""

    origin: Origin
    target: str

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def read_address(text: str, base: Address | None = None) -> Address | None:
    """None for what is no address. With a `base`, `text` may be a reference relative to it."""
    if not _PLAIN.fullmatch(text) or "\\" in text or "#" in text:
        return None
    if base is None or _SCHEME.match(text):
        return _absolute(text)
    if text.startswith("//"):
        return _absolute(f"{base.origin.scheme}:{text}")
    found = _absolute(urljoin(str(base), text))
    return found if found and found.origin == base.origin else None


def _absolute(text: str) -> Address | None:
    match = _SHAPE.fullmatch(text)
    if match is None:
        return None
    scheme, host = match["scheme"].lower(), (match["v6"] or match["host"]).lower()
    port = int(match["port"]) if match["port"] else PORTS[scheme]
    if not 0 < port < 1 << 16 or (match["v6"] and not _is_v6(host)) or ".." in host:
        return None
    return Address(Origin(scheme, host, port), match["target"] or "/")


def _is_v6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
