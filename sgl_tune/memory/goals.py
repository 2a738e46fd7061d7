"""What must hold of a start that is solved for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Goals:
    """Bytes free at the peak, and a KV cache for requests of a length. None: nothing said."""

    free_bytes: int = 0
    requests: int | None = None
    context_length: int | None = None

    def tokens(self, ranks: int) -> int:
        """In the KV cache of each of `ranks`: one request of the length, or its share of all of them."""
        return (self.context_length or 1) * -(-(self.requests or 1) // ranks)

    def __str__(self) -> str:
        requests = f"{self.requests or 1:,} request{'s' if (self.requests or 1) > 1 else ''}"
        return f"{requests} of {self.context_length:,} tokens" if self.context_length else requests

    def to_json(self) -> dict[str, Any]:
        return {
            "free_bytes": self.free_bytes,
            "requests": self.requests,
            "context_length": self.context_length,
        }

    @property
    def way_out(self) -> str:
        """For whom nothing fits."""
        asked = [
            name for name, value in (("--free", self.free_bytes), ("--requests", self.requests)) if value
        ]
        less = f"less of {' and '.join(asked)}, or " if asked else ""
        return f"{less}more GPUs (--tp), a larger one (--gpu), or fewer bytes a weight (--quantization)"
