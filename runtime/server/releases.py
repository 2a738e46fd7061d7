"""The release of SGLang that the core plans as: the newest that it was held against."""

from __future__ import annotations

from typing import NamedTuple

from runtime.server.errors import ConfigError
from runtime.server.version_number import number


class Release(NamedTuple):
    version: str
    flashinfer: str  # which it pins

    @property
    def number(self) -> tuple[int, ...]:
        return number(self.version)


NEWEST = Release("0.5.23", "0.7.2")


class Named(NamedTuple):
    """A release under the very name it was asked by, and what is doubtful about that."""

    release: Release
    note: str | None = None
    warning: str | None = None


def release_named(version: str | None) -> Named:
    """Whatever is asked for, the core plans as the newest one does."""
    if version is None:
        return Named(NEWEST, note=f"SGLang {NEWEST.version}: the one that the core plans as")
    wanted = number(version)
    if len(wanted) < 2:
        raise ConfigError(f"--sglang-version {version!r} is not a version", f"write it as {NEWEST.version}")
    if wanted == NEWEST.number:
        return Named(NEWEST._replace(version=version))
    doubt = (
        f"no server was asked: the core plans SGLang {version} as {NEWEST.version}; "
        f"`sgl-tune server add {version}` gets one that answers"
    )
    return Named(NEWEST._replace(version=version), warning=doubt)
