"""What no server could run, or nobody knows: said with the field and the way out."""

from __future__ import annotations


class ConfigError(ValueError):
    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


class UnknownModel(ConfigError):
    """A model of a family that the runtime core does not have; a server may know it."""


class Unsupported(ConfigError):
    """A model that servers serve, and whose layers this runtime does not have."""


class AnotherRelease(ConfigError):
    """A release of SGLang that the runtime core does not know; a server of that release does."""

    def __init__(self, message: str, version: str) -> None:
        super().__init__(message)
        self.version = version


class NoRoomForTokens(ConfigError):
    """The weights take more than the static fraction: how a start ends, and no mistake in its flags."""
