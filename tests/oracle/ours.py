"""What we make of a server command: the one place where the oracle asks our side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.parallelism import check_layout
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from tests.oracle.commands import Command
from tests.oracle.published import published

KNOWN = {field.name for field in fields(Asked)}
RENAMED = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs", "cuda_graph_bs_decode": "cuda_graph_bs"}


def our_answer(command: Command) -> dict[str, Any]:
    """As tests.oracle.read_server answers, `server` by the names of the dry run."""
    try:
        given = parse(flags_of(command.release), command.argv).given
        draft = given.get("speculative_draft_model_path")
        asked = _asked(given)
        check_layout(asked)
        server = resolve(
            asked,
            _checkpoint(given["model_path"]),
            _checkpoint(draft) if draft else None,
            find_gpu(command.gpu),
            release_named(command.release).release,
        )
        return {"server": {**server.to_json(), "key": server.key}}
    except ConfigError as refusal:
        return {"refused": refusal.message}
    except Exception as crash:
        return {"refused": f"crash: {type(crash).__name__}: {crash}"}


def _asked(given: Mapping[str, Any]) -> Asked:
    named = {RENAMED.get(name, name): value for name, value in given.items()}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}
    return Asked(**{name: value for name, value in plain.items() if name in KNOWN})


def _checkpoint(path: str) -> Checkpoint:
    one = published()[path.removeprefix("models/")]
    return Checkpoint(one.config, one.modelopt_file or {})
