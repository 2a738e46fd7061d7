"""The variables with which a server finds all of a root, for those who ask by a release's name."""

from __future__ import annotations

from collections.abc import Collection

from runtime.server.releases import release_named
from runtime.server.stores import gathering
from sgl_tune.deployment.versions import installed_version


def variables(
    sglang_version: str | None, place: str, stores: Collection[str], scratch: str | None = None
) -> tuple[dict[str, str], str | None]:
    """And what is doubtful about that release: None is the installed one, else the newest known. `stores` are
    those that are there; with a `scratch` folder the server may not write in `place`."""
    named = release_named(sglang_version or installed_version("sglang"))
    modules, cubins = "flashinfer-jit" in stores, "flashinfer-cubins" in stores
    return gathering(named.release, place, modules, cubins, scratch), named.warning
