"""A deployment as JSON and back: what plans print and manifests keep. What comes back is checked."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from runtime.config import ConfigError
from sgl_tune.deployment import Deployment
from sgl_tune.errors import UsageError


def deployment_to_json(deployment: Deployment) -> dict[str, Any]:
    return _plain(asdict(deployment))


def deployment_from_json(data: Mapping[str, Any], where: str) -> Deployment:
    """`where` names the file in errors."""
    try:
        deployment: Deployment = _decode(Deployment, data, "deployment")
    except (ConfigError, _WrongShapeError) as error:
        raise UsageError(
            f"{where}: {error}", "give the deployment by flags or warm the cache again"
        ) from error
    return deployment


class _WrongShapeError(ValueError):
    """A member that a deployment cannot have."""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _decode(inner, value, where)
    if origin is Literal:
        return _expect(value in arguments, value, where)
    if origin is tuple:
        _expect(isinstance(value, list), value, where)
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        _expect(len(kinds) == len(value), value, where)
        return tuple(_decode(item_kind, item, where) for item_kind, item in zip(kinds, value, strict=True))
    if is_dataclass(kind):
        return _decode_record(kind, value, where)
    if kind is Path:
        return Path(_expect(isinstance(value, str), value, where))
    if origin is not None:
        return dict(_expect(isinstance(value, Mapping), value, where))
    number_as_float = kind is float and isinstance(value, int)
    return _expect(
        (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))) or number_as_float,
        value,
        where,
    )


def _decode_record(kind: Any, value: Any, where: str) -> Any:
    _expect(isinstance(value, Mapping), value, where)
    hints = get_type_hints(kind)
    members = {}
    for field in fields(kind):
        if field.name in value:
            members[field.name] = _decode(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _WrongShapeError(f"{where}.{field.name} is missing")
    return kind(**members)


def _expect(fits: bool, value: Any, where: str) -> Any:
    if not fits:
        raise _WrongShapeError(f"{where} is {str(value)[:60]!r}")
    return value
