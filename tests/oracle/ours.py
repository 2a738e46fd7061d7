"""What we make of a server command: the one place where the oracle asks our side."""

from __future__ import annotations

from typing import Any

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.parallelism import check_layout
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from tests.oracle.commands import Command
from tests.oracle.published import published


def our_answer(command: Command) -> dict[str, Any]:
    """As tests.oracle.read_server answers, `server` by the names of the dry run."""
    try:
        given = parse(flags_of(command.release), command.argv).given
        draft = given.get("speculative_draft_model_path")
        asked = changed(Asked(), given)
        check_layout(asked)
        server = resolve(
            asked,
            _checkpoint(given["model_path"]),
            _checkpoint(draft) if draft else None,
            find_gpu(command.gpu),
            release_named(command.release).release,
        )
        kernels = server.sparse_kernels
        told = {"key": server.key, "sparse_kernels": [*kernels.both] if kernels else None}
        return {"server": {**server.to_json(), **told}}
    except ConfigError as refusal:
        return {"refused": refusal.message}
    except Exception as crash:
        return {"refused": f"crash: {type(crash).__name__}: {crash}"}


def _checkpoint(path: str) -> Checkpoint:
    one = published()[path.removeprefix("models/")]
    return Checkpoint(one.config, one.modelopt_file or {})
