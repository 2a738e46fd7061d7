"""`oci://registry/name:tag`, `...@sha256:...`: taken apart and nothing guessed."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from sgl_tune.errors import UsageError
from sgl_tune.ship.web_address import Origin, read_address
from sgl_tune.units import shown

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST = 255
_HOW = "write oci://REGISTRY/NAME:TAG, or oci://REGISTRY/NAME@sha256:..."


@dataclass(frozen=True, slots=True)
class Name:
    """`tag` is what is typed after the colon, `digest` after the @; with both, the digest decides."""

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

    def origin(self, scheme: str) -> Origin:
        address = read_address(f"{scheme}://{self.registry}")
        assert address is not None  # which `parse_name` saw to
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
    """By its name alone: whoever resolves another name to loopback has not said so."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
