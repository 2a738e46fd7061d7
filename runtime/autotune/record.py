"""Records what FlashInfer is asked, to compare it with a plan. FlashInfer's answers stay the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from flashinfer.autotuner import AutoTuner, TunableRunner, TuningConfig

from runtime.autotune.installed import (
    effective_config,
    file_key,
    nearest_profile,
    runner_name,
    search,
    skipped_ops,
)
from runtime.flashinfer.inside.lookups import varying_size

Mode = Literal["tuning", "serving"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup. A tuning call looks up every bucket up to its largest, a serving call only its own rows."""

    file_key: str
    op: str
    runner: str
    bucket: int
    mode: Mode
    hit: bool


@dataclass
class AskedRecord:
    asked: list[Lookup] = field(default_factory=list)

    def keys(self, mode: Mode | None = None) -> set[str]:
        return {entry.file_key for entry in self.asked if mode in (None, entry.mode)}

    @property
    def hits(self) -> int:
        return sum(entry.hit for entry in self.asked)

    @property
    def missed(self) -> tuple[Lookup, ...]:
        return tuple(entry for entry in self.asked if not entry.hit)


@contextmanager
def record_asked() -> Iterator[AskedRecord]:
    """Record the lookups inside, with any AutoTuner, including calls made while another call is measured."""
    record = AskedRecord()
    tuner = AutoTuner.get()
    choose_one = tuner.choose_one

    def recording(
        custom_op: str, runners: Any, tuning_config: TuningConfig, inputs: list[Any], **kw: Any
    ) -> tuple[TunableRunner, Any]:
        record.asked += _lookups(tuner, custom_op, runners, tuning_config, inputs)
        return choose_one(custom_op, runners, tuning_config, inputs, **kw)

    # Only on the instance, so that other tuners stay unchanged.
    tuner.choose_one = recording
    try:
        yield record
    finally:
        del tuner.choose_one


def _lookups(
    tuner: AutoTuner, op: str, runners: list[TunableRunner], config: TuningConfig, inputs: list[Any]
) -> Iterator[Lookup]:
    if op in skipped_ops(tuner):
        return
    config, tunes = effective_config(tuner, config), tuner.is_tuning_mode
    sizes = [tuple(tuner._get_input_sizes(inputs))]
    if tunes:
        sizes = [p.get_opt_shapes() for p in tuner._generate_optimization_profiles(config, inputs)]
    for shapes in sizes:
        hit, number, _ = search(tuner, op, runners, shapes, config, inputs, tuning=tunes)
        runner = runners[number]
        key = tuner._get_cache_key(op, runner, shapes, config, runner.get_cache_key_extras(inputs))
        bucket = varying_size(config, nearest_profile(key))
        yield Lookup(file_key(key), op, runner_name(key), bucket, "tuning" if tunes else "serving", hit)
