"""Which parameters of a Triton kernel it may write through, read from its source."""

import ast
import builtins
from collections.abc import Iterator
from typing import Any

STORES = {"store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"}
STORES |= {"atomic_xchg", "atomic_cas", "atomic_umax", "atomic_umin", "scatter", "reduce", "copy"}
FOREIGN = {"inline_asm_elementwise", "extern_elementwise", "call"}
# A loaded value is data, not a pointer through which a kernel can store.
VALUES = {"load", "program_id", "num_programs", "arange", "zeros", "full", "cdiv", "sum", "max", "min", "dot"}

_by_id: dict[int, frozenset[str]] = {}


def stored(function: Any) -> frozenset[str]:
    """Return the parameters that a JIT function may write through; all if its source cannot be read."""
    raw = function.fn
    found = _by_id.get(id(raw))
    if found is None:
        _by_id[id(raw)] = frozenset()  # a kernel that calls itself
        found = _by_id[id(raw)] = _read(function)
        _keep.append(raw)
    return found


_keep: list[Any] = []


def _read(function: Any) -> frozenset[str]:
    names = frozenset(function.arg_names)
    try:
        tree = function.parse().body[0]
    except Exception:
        return names
    return Flow(tree, names, getattr(function.fn, "__globals__", {})).written()


class Flow:
    """Follows pointers from parameters through assignments to the stores."""

    def __init__(self, tree: Any, names: frozenset[str], scope: dict[str, Any]) -> None:
        self._tree, self._scope = tree, scope
        self._from: dict[str, set[str]] = {name: {name} for name in names}

    def written(self) -> frozenset[str]:
        """Return the parameters written, at a fixed point: a loop may pass a pointer to an earlier line."""
        before = -1
        while before != (size := sum(map(len, self._from.values()))):
            before = size
            for node in ast.walk(self._tree):
                self._assign(node)
        found: set[str] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                found |= self._call(node)
        return frozenset(found)

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._into(target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._into(node.target, node.value)
        elif isinstance(node, ast.For):
            self._into(node.target, node.iter)

    def _into(self, target: ast.AST, value: ast.AST) -> None:
        origins = self._origins(value)
        if not origins:
            return
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._from.setdefault(node.id, set()).update(origins)

    def _origins(self, node: ast.AST) -> set[str]:
        """Return the parameters whose pointers may be in a value."""
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in VALUES:
                return set()
        if isinstance(node, ast.Name):
            return self._from.get(node.id, set())
        if isinstance(node, ast.Compare):
            return set()
        return set().union(*(self._origins(child) for child in ast.iter_child_nodes(node)), set())

    def _call(self, node: ast.Call) -> set[str]:
        name = _called(node)
        if name in STORES:
            first = node.args[:1] or [word.value for word in node.keywords if word.arg == "pointer"]
            own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return set().union(*(self._origins(one) for one in [*first, *own]), set())
        helper = self._helper(node.func)
        if helper is None:
            return set() if self._is_known(node.func) else self._given(node)
        inner, found = stored(helper), set()
        for at, given in _bound(node, helper.arg_names):
            if at in inner:
                found |= self._origins(given)
        return found

    def _is_known(self, node: ast.AST) -> bool:
        """Whether a function is Triton's or Python's own: none of these writes, except the stores above."""
        if isinstance(node, ast.Name):
            home = str(getattr(self._scope.get(node.id), "__module__", ""))
            return hasattr(builtins, node.id) or home.startswith(("triton", "builtins"))
        return _root(node) not in self._from and getattr(node, "attr", "") not in FOREIGN

    def _given(self, node: ast.Call) -> set[str]:
        words = (word.value for word in node.keywords)
        return set().union(*(self._origins(one) for one in (*node.args, *words)), set())

    def _helper(self, node: ast.AST) -> Any:
        """Return the JIT function that a call names, or None."""
        value: Any = None
        if isinstance(node, ast.Name):
            value = self._scope.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            value = getattr(self._scope.get(node.value.id), node.attr, None)
        return value if hasattr(value, "arg_names") and hasattr(value, "parse") else None


def _root(node: ast.AST) -> str:
    """Return the name before the first dot."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(node: ast.Call, names: list[str]) -> Iterator[tuple[str, ast.AST]]:
    yield from zip(names, node.args, strict=False)
    for word in node.keywords:
        if word.arg is not None:
            yield word.arg, word.value


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
