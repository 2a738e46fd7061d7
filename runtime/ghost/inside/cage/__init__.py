"""The cage around a start: no network, no writing elsewhere, no foreign code, and death with its parent."""

from runtime.ghost.inside.cage.enter import enter, model_code
from runtime.ghost.inside.cage.seccomp import keep_together

__all__ = ["enter", "keep_together", "model_code"]
