"""By which attention a release's own worker of DFLASH's drafts attends: settled with the arguments of a
server, or as the worker is made."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WORKERS = ("dflash_worker_v2", "dflash_worker")
_BUILDS = ("resolve_draft_worker_attention_backend", "_resolve_draft_attention_backend_fallback")
_SETTLED = "draft_backend"


def attention_of_blocks(args: Any, get: Any) -> str:
    return _as_made(args) or _as_built(args) or str(get("speculative_draft_attention_backend"))


def _as_built(args: Any) -> str | None:
    """By what all such workers share since 0.5.16."""
    try:
        common = importlib.import_module("sglang.srt.speculative.draft_worker_common")
    except ImportError:
        return None
    resolve = next(getattr(common, name) for name in _BUILDS if hasattr(common, name))
    told = {"algo_label": "DFLASH", "server_args": args, "draft_server_args": args}
    wanted = inspect.signature(resolve).parameters
    return str(resolve(**{name: value for name, value in told.items() if name in wanted}))


def _as_made(args: Any) -> str | None:
    """By the worker's own statements, until 0.5.14."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "srt/speculative"
    path = next(one for name in _WORKERS if (one := folder / f"{name}.py").is_file())
    found = [*_statements(ast.parse(path.read_text()))]
    names: dict[str, Any] = {"draft_server_args": args, "logger": logging.getLogger("cut")}
    exec(compile(ast.Module(found, []), str(path), "exec"), names)
    return names.get(_SETTLED)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Of those that make a worker, the ones that settle it."""
    for kind in (one for one in tree.body if isinstance(one, ast.ClassDef)):
        made = [one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        for node in (one for function in made for one in function.body):
            targets = [one for part in ast.walk(node) if isinstance(part, ast.Assign) for one in part.targets]
            names = {name.id for one in targets for name in ast.walk(one) if isinstance(name, ast.Name)}
            if names & {_SETTLED, "supported_draft_backends"}:
                yield node
