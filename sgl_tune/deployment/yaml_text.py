"""YAML as SGLang reads it, by the same reader, of bounded size."""

from __future__ import annotations

from typing import Any

from sgl_tune.errors import UsageError

LARGEST = 1 << 16
_MOST_VALUES = 10_000


def read_yaml(text: str, where: str) -> list[Any]:
    """Its documents. Tags that build objects are refused by the reader, aliases without end here."""
    import yaml  # a tenth of a command's start, for the few that need it

    if len(text) > LARGEST:
        raise UsageError(f"{where} has {len(text)} letters: {LARGEST} are the most")
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())[:300]}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{where} cannot be read: {str(error)[:200]}") from None
    if _is_endless(documents):
        raise UsageError(f"{where} holds more than {_MOST_VALUES} values, its aliases followed")
    return documents


def _is_endless(value: Any) -> bool:
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES:
            return True
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, (list, tuple, set)):
            waiting += item
    return False
