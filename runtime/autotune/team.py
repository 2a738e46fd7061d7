"""The workers that search together: objects between processes over gloo, so that no GPU stream is touched."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from runtime.autotune.errors import AutotuneError, TuningOutOfMemory, first_line

Result = TypeVar("Result")


class Team:
    """Alone (the default) nothing is exchanged; everything else is the same."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.size = 1 if group is None else dist.get_world_size(group)
        self.rank = 0 if group is None else dist.get_rank(group)

    @classmethod
    def of_world(cls, timeout: timedelta = timedelta(minutes=10)) -> Team:
        """Every process of an initialised `torch.distributed`; all must call it."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return cls()
        return cls(dist.new_group(backend="gloo", timeout=timeout))

    def gather(self, mine: Any) -> list[Any]:
        """Everybody's object, in rank order."""
        if self.group is None:
            return [mine]
        everybody: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everybody, mine, group=self.group)
        except (RuntimeError, ValueError) as error:
            raise AutotuneError(
                f"worker {self.rank} of {self.size} lost the others while tuning: {first_line(error)}"
            ) from error
        return everybody

    def together(self, what: str, work: Callable[[], Result]) -> list[Result]:
        """Everybody's result of a step, or one error on all: a worker that fails leaves nobody waiting."""
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
