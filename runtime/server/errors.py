"""What no server could run, or nobody knows: said with the field and the way out."""

from __future__ import annotations


class ConfigError(ValueError):
    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Unsupported(ConfigError):
    """A model that servers serve, and whose layers this runtime does not have."""
