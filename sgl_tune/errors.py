"""What a user, a disk or another process can do wrong. The command line prints these as one line."""

from __future__ import annotations


class Ended(Exception):
    """The command is done, and this is its exit code: nothing more is to be said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class SglTuneError(Exception):
    """A failure with a sentence that names the file, the value and the way out."""

    exit_code = 3

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(SglTuneError):
    """Wrong flags, or something named that does not exist."""

    exit_code = 2


class CheckFailed(SglTuneError):
    """The thing that was checked is bad: an unusable cache, a predicted OOM, a missed proof."""

    exit_code = 1


class WorkFailed(SglTuneError):
    """The work itself failed: a dead worker, a full disk, a device out of memory."""

    exit_code = 3
