"""The variables with which a server finds all of a root, for those who ask by a release's name."""

from __future__ import annotations

from runtime.server.releases import release_named
from runtime.server.stores import gathering
from sgl_tune.deployment.versions import installed_version


def variables(sglang_version: str | None, place: str, offers: bool) -> tuple[dict[str, str], str | None]:
    """And what is doubtful about that release. None is the installed one, else the newest known."""
    named = release_named(sglang_version or installed_version("sglang"))
    return gathering(named.release, place, offers), named.warning
