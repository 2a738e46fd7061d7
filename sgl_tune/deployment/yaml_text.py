"""Read YAML with the reader that SGLang uses, up to a limited size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

LARGEST = 1 << 18
_MOST_VALUES = 40_000


def read_yaml(text: str, where: str) -> list[Any]:
    """Return the documents of a YAML text; refuse tags that build objects, and endless aliases."""
    import yaml  # takes 10 % of a command's start, and few commands need it

    if len(text) > LARGEST:
        raise UsageError(f"{where} has {len(text)} letters: {LARGEST} are the most", "give one document")
    try:
        loader = yaml.SafeLoader(text)
        return list(_documents(loader, where))
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())[:300]}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{where} cannot be read: {str(error)[:200]}") from None


def _documents(loader: SafeLoader, where: str) -> Iterator[Any]:
    """Yield the documents. Each is counted before its values are made, because merge keys copy values."""
    left = _MOST_VALUES
    while loader.check_node():
        node = loader.get_node()
        left -= _values(node, left)
        if left < 0:
            raise UsageError(f"{where} holds more than {_MOST_VALUES} values, its aliases followed")
        yield loader.construct_document(node)


def _values(root: Node | None, most: int) -> int:
    """Count a document's values with each alias written out; any number above `most` if there are more."""
    sizes: dict[int, int] = {}
    entered: set[int] = set()
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting[-1]
        inner = _inner(node)
        if id(node) in sizes:
            waiting.pop()
        elif id(node) not in entered:
            entered.add(id(node))
            if any(id(item) in entered and id(item) not in sizes for item in inner):
                return most + 1  # an alias that contains itself
            waiting += inner
        else:
            sizes[id(node)] = min(1 + sum(sizes[id(item)] for item in inner), most + 1)
            waiting.pop()
    return sizes[id(root)] if root is not None else 0


def _inner(node: Node) -> list[Node]:
    """Return a node's children; none for a scalar."""
    if node.id == "mapping":
        return [item for pair in node.value for item in pair]
    return list(node.value) if node.id == "sequence" else []
