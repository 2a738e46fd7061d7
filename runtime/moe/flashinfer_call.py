"""Calling FlashInfer's MoE functions, whose options have grown from version to version."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from runtime.server.errors import ConfigError


def call_with(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """The result, also where this version cannot be given the place for it."""
    unknown = arguments.keys() - _options(function)
    for name in unknown - {"output"}:
        if arguments[name] is not None:
            raise ConfigError(
                f"the installed FlashInfer's {function.__name__} does not take {name}",
                "tune with the FlashInfer that the server pins",
            )
    result = function(**{name: value for name, value in arguments.items() if name not in unknown})
    return result if "output" in unknown else arguments.get("output", result)


def forget_ranges() -> None:
    """CUTLASS's experts keep the last range of rows that was new to them, whatever a call names since: a
    process that tuned for long batches, then for short ones, would tune the next for short ones, too."""
    from flashinfer.autotuner import TunableRunner

    for runner in TunableRunner.__subclasses__():
        known = getattr(runner, "refine_tuning_config", None)
        if known is not None:
            known.cache_clear()


def takes(function: Callable[..., Any], name: str) -> bool:
    return name in _options(function)


@cache
def _options(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)
