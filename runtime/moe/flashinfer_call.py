"""Calls FlashInfer's MoE functions, which take different arguments in different versions."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from runtime.server.errors import ConfigError


def call_with(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the function's result, even if this version has no `output` argument."""
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
    """Clear what CUTLASS's experts remember: they keep the last new range of rows and use it in later calls.
    A process that tuned long batches would otherwise tune later short ones with the long range."""
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
