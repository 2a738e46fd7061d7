"""The workers that search together. They exchange their results as plain JSON, never as a pickle."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from runtime.autotune.agreement import BucketReport, Terms
from runtime.autotune.candidate import Candidate
from runtime.autotune.errors import AutotuneError, TuningOutOfMemory, first_line
from runtime.autotune.play_off import Settled
from runtime.autotune.search import Screened

_KINDS: tuple[Any, ...] = (Terms, BucketReport, Candidate, Screened, Settled)
_RECORDS = {kind.__name__: kind for kind in _KINDS}
_LIST, _TUPLE, _MAPPING = "list", "tuple", "mapping"
Result = TypeVar("Result")
# Takes this worker's JSON value and returns those of all workers, in rank order.
Exchange = Callable[[Any], list[Any]]


class Team:
    """A team of workers. A team of one (the default) exchanges nothing, and works the same otherwise."""

    def __init__(self, rank: int = 0, size: int = 1, exchange: Exchange | None = None) -> None:
        self.rank, self.size = rank, size
        self._exchange = exchange

    def gather(self, mine: Any) -> list[Any]:
        """Return the objects of all workers, in rank order."""
        if self._exchange is None:
            return [mine]
        try:
            return [from_wire(told) for told in self._exchange(to_wire(mine))]
        except (RuntimeError, ValueError) as error:
            raise AutotuneError(
                f"worker {self.rank} of {self.size} lost the others while tuning: {first_line(error)}"
            ) from error

    def together(self, what: str, work: Callable[[], Result]) -> list[Result]:
        """Return all workers' results of a step, or raise one error on all, so that none waits."""
        error: Exception | None = None
        result: Result | None = None
        try:
            result = work()
        except Exception as caught:  # told to all, then raised on all
            error = caught
        failure = None if error is None else (first_line(error), isinstance(error, TuningOutOfMemory))
        answers = self.gather((result, failure))
        failures = [(rank, *told) for rank, (_, told) in enumerate(answers) if told is not None]
        if failures:
            raise self._common_error(what, failures) from error
        return [answer for answer, _ in answers]

    def _common_error(self, what: str, failures: list[tuple[int, str, bool]]) -> AutotuneError:
        rank, text, out_of_memory = failures[0]
        who = "" if self.size == 1 else f" on worker {rank} of {self.size}"
        kind = TuningOutOfMemory if out_of_memory else AutotuneError
        return kind(f"{what}{who}: {text}")


def to_wire(value: Any) -> Any:
    """Return a scalar as it is, and anything else as a list that begins with its kind."""
    if value is None or isinstance(value, str):
        return value
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    name = type(value).__name__
    if isinstance(value, _KINDS):
        return [name, *(to_wire(getattr(value, field.name)) for field in fields(_RECORDS[name]))]
    if isinstance(value, Mapping):
        return [_MAPPING, *([to_wire(key), to_wire(item)] for key, item in value.items())]
    if isinstance(value, list):
        return [_LIST, *map(to_wire, value)]
    if hasattr(value, "__iter__"):  # a tuple, or the array of a foreign library that a tactic may be
        return [_TUPLE, *map(to_wire, value)]
    raise TypeError(f"workers cannot share a {name}")


def from_wire(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    kind, *parts = data
    if kind == _MAPPING:
        return {from_wire(key): from_wire(item) for key, item in parts}
    values = (from_wire(part) if isinstance(part, list) else part for part in parts)
    if kind == _LIST:
        return list(values)
    if kind == _TUPLE:
        return tuple(values)
    return _RECORDS[kind](*values)
