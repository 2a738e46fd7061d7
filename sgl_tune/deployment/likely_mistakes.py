"""What is taken as it was given, and is most likely not what its author meant."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.flags.spelling import line_of
from runtime.server.releases import Release, release_named
from sgl_tune.deployment.options import ServerFlags


def likely_mistakes(flags: ServerFlags) -> tuple[str, ...]:
    """Of flags; a server command is held against its release's own command line."""
    if flags.moe_runner_backend is None:
        return ()
    return tuple(_unknown_backend(flags.moe_runner_backend, release_named(flags.sglang_version).release))


def undivided_heads(asked: Asked, checkpoint: Checkpoint) -> Iterator[str]:
    heads = checkpoint.get("num_attention_heads")
    attn_tp = asked.tp_size // (asked.attn_dp_size or (asked.dp_size if asked.enable_dp_attention else 1))
    if isinstance(heads, int) and attn_tp and heads % attn_tp:
        yield (
            f"{heads} attention heads cannot be divided among {attn_tp} ranks (tp {asked.tp_size}): "
            "the server will not start"
        )


def _unknown_backend(backend: str, release: Release) -> Iterator[str]:
    line = line_of(release)
    known = [str(name) for name in line.by_field["moe_runner_backend"].choices or ()]
    if backend not in known:
        close = get_close_matches(backend, known)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        yield f"--moe-runner-backend {backend} is none that SGLang {release.version} has{meant}"
