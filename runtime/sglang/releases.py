"""The release of SGLang that the core follows: the newest one that it was compared with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from runtime.flashinfer.versions import number
from runtime.server.errors import AnotherRelease, ConfigError


class Release(NamedTuple):
    version: str
    flashinfer: str  # which it pins

    @property
    def number(self) -> tuple[int, ...]:
        return number(self.version)

    @property
    def separates_graphs(self) -> bool:
        """Whether prefill and decode graphs have flags of their own."""
        return self.number >= (0, 5, 14)


NEWEST = Release("0.5.23", "0.7.2")


def checked_version(version: str) -> str:
    if len(number(version)) < 2:
        raise ConfigError(f"{version!r} is not a version of SGLang", f"write it as {NEWEST.version}")
    return version


def release_named(version: str) -> Release:
    """Return the core's release under the version asked for; refuse others, which it does not know."""
    if number(checked_version(version)) != NEWEST.number:
        raise AnotherRelease(f"SGLang {version}: the core plans as {NEWEST.version} alone", version)
    return NEWEST._replace(version=version)


def request_modules(arguments: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return each module's name and FlashInfer's function that makes it, from the resolved `arguments`."""
    if arguments.get("sampling_backend") == "flashinfer":  # the first request that draws a token
        return (("sampling", "sampling:gen_sampling_module"),)
    return ()
