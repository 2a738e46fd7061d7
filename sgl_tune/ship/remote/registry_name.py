"""Names in a registry, and web addresses. A text that two libraries could read differently is refused, so
that the host that was checked is the host that is connected to."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urljoin

from sgl_tune.errors import UsageError
from sgl_tune.units import shown

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST = 255
_HOW = "write oci://REGISTRY/NAME:TAG, or oci://REGISTRY/NAME@sha256:..."
PORTS = {"http": 80, "https": 443}
_PLAIN = re.compile(r"[!-~]{1,16384}")
_SHAPE = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9._-]{0,252})|\[(?P<v6>[0-9a-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<target>/[^\\#]*)?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Name:
    """A repository's name. `tag`: after the colon. `digest`: after the @; it decides if both are given."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.place}{tag}{'@' + self.digest if self.digest else ''}"

    @property
    def place(self) -> str:
        return f"oci://{self.registry}/{self.repository}"

    @property
    def reference(self) -> str | None:
        return self.digest or self.tag

    def origin(self, scheme: str) -> "Origin":
        address = read_address(f"{scheme}://{self.registry}")
        assert address is not None  # `parse_name` has checked it
        return address.origin


def parse_name(url: str) -> Name:
    body = url.removeprefix("oci://")
    host, slash, path = body.partition("/")
    path, at, digest = path.partition("@")
    repository, colon, tag = path.partition(":")
    name = Name(host, repository, tag if colon else None, digest if at else None)
    if not slash or not _HOST.fullmatch(host) or read_address(f"https://{host}") is None:
        raise UsageError(f"{shown(url)}: {shown(host)} is no registry's host", _HOW)
    if len(repository) > _LONGEST or not _REPOSITORY.fullmatch(repository):
        raise UsageError(
            f"{shown(url)}: {shown(repository)} is no name in a registry", f"{_HOW}, in lower case"
        )
    if colon and not _TAG.fullmatch(tag):
        raise UsageError(f"{shown(url)}: {shown(tag)} is no tag", _HOW)
    if at and not DIGEST.fullmatch(digest):
        raise UsageError(f"{shown(url)}: {shown(digest)} is no digest", "sha256: and 64 hexadecimal digits")
    return name


def is_loopback(host: str) -> bool:
    """Whether a host is loopback by its name alone. Other names may resolve to it, but do not say so."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Origin:
    """The server to which a password belongs. `host`: in lower case, IPv6 without brackets."""

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
    """A web address. `target`: path and query."""

    origin: Origin
    target: str

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def read_address(text: str, base: Address | None = None) -> Address | None:
    """Parse a web address, or a reference relative to `base`; return None if the text is neither."""
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
