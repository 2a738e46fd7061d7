"""What an operation's schema says of it, found once: what it writes, and how its result is made."""

from enum import Enum, auto
from typing import Any, NamedTuple

import torch


class Kind(Enum):
    PASS = auto()  # it moves no values, or the mode sees the operations that it calls
    EMPTY = auto()
    ORDINARY = auto()
    INDEX = auto()
    COPY = auto()
    COPIES = auto()
    ZERO = auto()
    ITEM = auto()
    CUSTOM = auto()
    UNIFORM = auto()


class Plan(NamedTuple):
    kind: Kind
    written: tuple[tuple[int, str], ...]  # arguments that are changed: position and name
    returns_fresh: bool
    may_alias: bool  # its result may be its argument, which the schema does not say
    answers: bool  # it returns a number and no tensor
    sized: bool  # the size of its result depends on values


EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
ZERO = {"zeros", "zeros_like", "new_zeros", "zero_", "zero"}
COPY = {"copy_", "clone", "_to_copy", "to", "contiguous", "cuda", "cpu", "lift_fresh_copy", "copy"}
COPY |= {"_copy_from", "type_as", "_copy_from_and_resize"}
ITEM = {"_local_scalar_dense", "item"}
INDEX = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
SIZED = {"nonzero", "masked_select", "bincount", "unique_dim", "unique_consecutive", "_unique", "_unique2"}
SIZED |= {"unique_dim_consecutive", "repeat_interleave", "argwhere", "nonzero_numpy", "histc"}
PASS = {"set_", "resize_", "record_stream", "_pin_memory", "pin_memory", "is_pinned", "lift", "lift_fresh"}
PASS |= {"_assert_async", "_assert_scalar", "detach_", "requires_grad_", "rename", "rename_", "size", "dim"}
PASS |= {"_has_compatible_shallow_copy_type", "is_same_size", "sym_size", "sym_stride", "sym_numel", "numel"}
PASS |= {"storage_offset", "stride", "is_contiguous", "_nested_tensor_size", "retain_grad", "_version"}
TORCH = {"aten", "prims", "prim"}
# Collectives write the values of peers: sglang/inside/ranks.py handles them.
SEEN_ELSEWHERE = {"c10d", "_c10d_functional", "c10d_functional", "profiler", "inductor", "rngprims"}


def plan_of(func: Any, python_operators: set[str]) -> Plan:
    """Return the plan of an operator."""
    schema = func._schema
    name = schema.name.split("::")[-1]
    written = tuple(
        (at, one.name)
        for at, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    )
    fresh = any(one.alias_info is None and "Tensor" in str(one.type) for one in schema.returns)
    answers = bool(schema.returns) and not any("Tensor" in str(one.type) for one in schema.returns)
    alias = func.namespace in TORCH and not written and _is_composite(func)
    sized = name in SIZED
    if func.namespace not in TORCH and not written and not fresh:
        written = tuple(
            (at, one.name) for at, one in enumerate(schema.arguments) if "Tensor" in str(one.type)
        )
    return Plan(_kind(func, name, python_operators), written, fresh, alias, answers, sized)


def _kind(func: Any, name: str, python_operators: set[str]) -> Kind:
    if func.namespace not in TORCH:
        if func._schema.name in python_operators or func.namespace in SEEN_ELSEWHERE:
            return Kind.PASS
        return Kind.CUSTOM
    if name in PASS or func.is_view:
        return Kind.PASS
    for names, kind in ((EMPTY, Kind.EMPTY), (ZERO, Kind.ZERO), (COPY, Kind.COPY), (ITEM, Kind.ITEM)):
        if name in names:
            return kind
    if name in INDEX:
        return Kind.INDEX
    if name == "_foreach_copy_":
        return Kind.COPIES
    if name == "uniform_":
        return Kind.UNIFORM
    if torch.Tag.nondeterministic_seeded in func.tags:  # other random numbers of a GPU are not repeated
        return Kind.CUSTOM
    return Kind.ORDINARY


def _is_composite(func: Any) -> bool:
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))
