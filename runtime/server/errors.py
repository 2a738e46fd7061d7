"""Servers that cannot run, or that the core does not know. Each error names the field and the way out."""


class ConfigError(ValueError):
    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


class UnknownModel(ConfigError):
    """The core does not have this model's family; a server may have it."""


class Unsupported(ConfigError):
    """SGLang serves this model, but this runtime does not have its layers."""


class AnotherRelease(ConfigError):
    """The core does not know this release of SGLang; a server of that release does."""

    def __init__(self, message: str, version: str) -> None:
        super().__init__(message)
        self.version = version


class NoRoomForTokens(ConfigError):
    """The weights take more than the static fraction. A start fails so; the flags are not wrong."""
