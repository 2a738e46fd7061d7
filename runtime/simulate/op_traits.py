"""What the tracker has to know of a torch op, read from its schema once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class OpTraits:
    """`fresh`: some result has a storage of its own; `launches`: something runs on the device."""

    name: str
    fresh: bool
    launches: bool
    composite: bool


def describe(func: Any) -> OpTraits:
    schema = func._schema
    # `torch.tensor` makes its storage out of sight and shows it in this one op.
    shown = schema.name == "aten::lift_fresh"
    fresh = any(result.alias_info is None for result in schema.returns)
    aliases = [one.alias_info for one in (*schema.arguments, *schema.returns) if one.alias_info is not None]
    writes = any(alias.is_write for alias in aliases)
    name = schema.name.removeprefix("aten::")
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return OpTraits(
        name=name,
        fresh=fresh or shown,
        launches=(fresh or writes) and "empty" not in name,
        composite=func.has_kernel_for_dispatch_key(key),
    )
