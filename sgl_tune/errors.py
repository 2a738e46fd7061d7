"""What a user, a disk or another process can do wrong. The command line prints each as one line."""


class Ended(Exception):
    """The command is done, with this exit code. Nothing more is printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class SglTuneError(Exception):
    """A failure, described by a sentence that names the file, the value and the way out."""

    exit_code = 3

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(SglTuneError):
    """Wrong flags, or a name of something that does not exist."""

    exit_code = 2


class CheckFailed(SglTuneError):
    """A check failed: an unusable cache, a predicted OOM, a missed proof."""

    exit_code = 1


class WorkFailed(SglTuneError):
    """The work itself failed: a dead worker, a full disk, a device out of memory."""

    exit_code = 3
