"""The process that writes a managed store with FlashInfer's own writer, then reads it with FlashInfer's
reader. Only this process imports torch and FlashInfer."""

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import LeadsOut, open_folder
from sgl_tune.export.result import REFUSED, WRITTEN
from sgl_tune.processes.child import Child


def main(child: Child) -> None:
    asked = child.command()
    try:
        child.say(WRITTEN, **write(Path(asked["root"]), asked["environment"], asked["entries"]))
    except (LeadsOut, OSError, ImportError) as error:
        remedy = getattr(error, "remedy", None)
        child.say(REFUSED, message=str(getattr(error, "message", None) or error), remedy=remedy)


def write(root: Path, environment: Mapping[str, str], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Write the store and count. `hits`: entries that a lookup in it finds. `in_memory`: entries that a
    server loads when it attaches the store. `without_policy`: entries that serve, but are tuned again."""
    from flashinfer.autotune_cache import ManagedAutotuneCache

    store = ManagedAutotuneCache(manifest=dict(environment), root=root)
    open_folder(store.entries_dir, root, create=True).close()
    before = _read(ManagedAutotuneCache(manifest=dict(environment), root=root), entries)
    keeps = set(inspect.signature(store.publish).parameters)
    for key, (runner, tactic, *policy) in entries.items():
        told = {"key_fields": fields_of(key), "profiling_policy": tuple(policy[0]) if policy else None}
        store.publish(key, runner, tactic, **{name: value for name, value in told.items() if name in keeps})
    reader = ManagedAutotuneCache(manifest=dict(environment), root=root)
    preloaded = reader.preload()[0] if hasattr(reader, "preload") else []
    after = _read(ManagedAutotuneCache(manifest=dict(environment), root=root), entries)
    wanted = {key: (value[0], value[1]) for key, value in entries.items()}
    return {
        "folder": str(store.env_dir),
        "entries": len(entries),
        "added": len(after.keys() - before.keys()),
        "changed": sum(before[key] != after.get(key) for key in before),
        "hits": sum(after.get(key) == value for key, value in wanted.items()),
        "in_memory": sum(str(fields) in entries for fields, _ in preloaded),
        "without_policy": sum(len(value) < 3 for value in entries.values()),
    }


def _read(store: Any, entries: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    found = {key: store.lookup(key) for key in entries}
    # A FlashInfer version without policies returns a pair.
    return {key: (entry[0], entry[1]) for key, entry in found.items() if entry is not None}


def fields_of(key: str) -> tuple[Any, ...] | None:
    """Return the values from which an entry's key was printed; None if one is neither a literal nor a
    dtype. With them, FlashInfer reads the entry when a server attaches the store, not only at a lookup."""
    try:
        fields = _value(ast.parse(key, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return fields if isinstance(fields, tuple) and str(fields) == key else None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        import torch

        dtype = getattr(torch, node.attr, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    return ast.literal_eval(node)
