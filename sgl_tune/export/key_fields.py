"""The values that an entry's key was printed from, where its text tells them: a store that holds them is read
into memory when a server attaches it, one file after the other otherwise."""

from __future__ import annotations

import ast
from typing import Any

import torch


def fields_of(key: str) -> tuple[Any, ...] | None:
    """None where anything in it is neither a literal nor a dtype."""
    try:
        fields = _value(ast.parse(key, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return fields if isinstance(fields, tuple) and str(fields) == key else None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        dtype = getattr(torch, node.attr, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    return ast.literal_eval(node)
