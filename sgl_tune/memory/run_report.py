"""From the file that a start streams to its report. The file may be anybody's, and of a start that died."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.start.run_record import Run, RunFileError, parse_run
from sgl_tune.errors import UsageError
from sgl_tune.memory.report import Constant, Report, Sizes
from sgl_tune.reading import bounded_bytes
from sgl_tune.units import shown

_LARGEST = 16 << 20
_MOST = 1 << 60
_COUNTED_MARGIN = 128 << 20
_CONSTANT_MARGIN = 0.1


def read_report(path: Path) -> Report:
    try:
        run = parse_run(bounded_bytes(path, _LARGEST), str(path))
    except RunFileError as error:
        raise UsageError(str(error), "give the file that mem-report --out wrote") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return report_of(run, str(path))


def report_of(run: Run, where: str) -> Report:
    """`where` names the file in errors."""
    facts = _Facts(run.about, where)
    constants = tuple(_constant(item, where) for item in facts.list("constants"))
    predicted = facts.text("device") == "meta"
    return Report(
        gpu=facts.text("gpu") or "GPU",
        total_bytes=facts.whole("total_bytes") or 0,
        source="predicted" if predicted else "measured",
        run=run,
        rank=facts.whole("rank") or 0,
        rank_name=facts.text("rank_name") or "TP0",
        sizes=_sizes(facts),
        constants=constants,
        margin_bytes=_margin(constants) if predicted else 0,
        title=facts.text("title") or where,
        subtitle=facts.text("subtitle"),
    )


def _margin(constants: tuple[Constant, ...]) -> int:
    """What was measured against predictions so far, and a tenth of what is only calibrated."""
    return _COUNTED_MARGIN + round(_CONSTANT_MARGIN * sum(constant.bytes for constant in constants))


def _sizes(facts: _Facts) -> Sizes:
    return Sizes(
        mem_fraction_static=facts.number("mem_fraction_static"),
        kv_bytes_per_token=facts.whole("kv_bytes_per_token"),
        kv_tokens=facts.whole("kv_tokens"),
        context_length=facts.whole("context_length"),
        max_running_requests=facts.whole("max_running_requests"),
        dummy_batch_rows=facts.whole("dummy_batch_rows"),
        chunked_prefill_size=facts.whole("chunked_prefill_size"),
        prefill_graphs=facts.wholes("prefill_graphs"),
        decode_graphs=facts.wholes("decode_graphs"),
    )


def _constant(item: Any, where: str) -> Constant:
    facts = _Facts(item if isinstance(item, Mapping) else {}, where)
    times = facts.whole("times")
    return Constant(
        facts.text("name"), facts.whole("bytes") or 0, facts.text("source"), 1 if times is None else times
    )


class _Facts:
    """Members of the file's records, each of the kind that is expected, or the file is refused."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self._where = values, where

    def whole(self, name: str) -> int | None:
        return self._of(name, int)

    def number(self, name: str) -> float | None:
        return self._of(name, (int, float))

    def text(self, name: str) -> str:
        return self._of(name, str) or ""

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(self._checked(name, value, int) for value in self.list(name))

    def list(self, name: str) -> list[Any]:
        return self._of(name, list) or []

    def _of(self, name: str, kind: Any) -> Any:
        value = self._values.get(name)
        return None if value is None else self._checked(name, value, kind)

    def _checked(self, name: str, value: Any, kind: Any) -> Any:
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (isinstance(value, (int, float)) and not abs(value) <= _MOST):  # nor is NaN
            raise UsageError(f"{self._where}: {name} is {shown(value)}")
        return value
