"""Changed arguments as words of a server's own command line, in the spelling of its release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.sglang.releases import NEWEST, Release
from sgl_tune.deployment.options import spelled


def release_of(version: str) -> Release:
    """A release that nobody here has heard of speaks as the newest known."""
    return NEWEST._replace(version=version)


def words(release: Release, changes: Mapping[str, Any]) -> list[str]:
    return [word for name, value in changes.items() for word in _words(release, name, value)]


def _words(release: Release, name: str, value: Any) -> list[str]:
    shown = f"{value:.3f}" if isinstance(value, float) else value
    return str(spelled(release, name, shown)).split()
