"""What to say of versions that nobody here has read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from runtime.server.flashinfer import doubt_of
from runtime.server.releases import NEWEST, Release, release_named


class Versions(Protocol):
    @property
    def sglang_version(self) -> str: ...
    @property
    def flashinfer_version(self) -> str: ...


def unknown_versions(of: Versions) -> Iterator[str]:
    """For the line of a verdict, which then rests on what another version does."""
    if release_named(of.sglang_version).warning:
        yield (
            f"SGLang {of.sglang_version} is not known here: its rules and its key are taken to be those of"
            f" {NEWEST.version}"
        )
    doubt = doubt_of(of.flashinfer_version)
    if doubt:
        yield doubt


def pinned_by(release: Release) -> str:
    """Whose pin a release's FlashInfer is: the newest known one's, where nobody has read its own."""
    if not release_named(release.version).warning:
        return f"what SGLang {release.version} pins"
    return f"what SGLang {NEWEST.version} pins; of {release.version} that is not known"
