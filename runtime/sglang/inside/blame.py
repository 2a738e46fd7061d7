"""Whether a start ended because of the simulated GPU or of this machine: then a real one may go on."""

from importlib.util import find_spec

from runtime.ghost.inside import honesty

_NEEDED = "SGLang needs what {0} answers, and that module is not there ({1})"
_UNREAD = "SGLang read back bytes that no kernel computed, and ended in the same function ({0})"
_COMPILED = "SGLang compiles code with torch at this point, which is not done here ({0})"
_HOST = "this machine's own memory decided, not the server's ({0}); ask without --enable-hierarchical-cache"
_DEEPEP = "DeepEP waits for numbers that only its kernels write; ask without --moe-a2a-backend deepep"


def blame(error: BaseException) -> str | None:
    """Return why a start that ended with this error tells nothing about the server; None if it does."""
    text = str(error)
    if missing := honesty.needed(error):
        return _NEEDED.format(missing, error)
    if honesty.followed(error, "unread"):
        return _UNREAD.format(f"{type(error).__name__}: {error}")
    if any(place == "cpp_extension.py" for place, _ in honesty.calls(error)):
        return _COMPILED.format(text)
    if text.startswith("Not enough host memory"):
        return _HOST.format(text.partition(". Please")[0])
    if text.startswith("DeepEP is not available") and find_spec("deep_ep"):
        return _DEEPEP
    return None
