"""`sgl-tune warm --everything`: what is compiled before the tactics are tuned, and what comes after them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sgl_tune.commands.warm_outcome import Outcome
from sgl_tune.compile.everything import (
    Compiled,
    Toolkit,
    Wanted,
    compile_all,
    finish,
    variables_while_filling,
)
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import UsageError
from sgl_tune.processes.interruption import Interruption


@contextmanager
def _kept() -> Iterator[None]:
    try:
        yield
    except Interruption as interruption:
        raise interruption.saying("what is compiled is kept: the same command goes on from there") from None


@dataclass
class Root:
    """Of all deployments of this warm: the one cache directory that they share."""

    came: Outcome
    wanted: Wanted
    toolkit: Toolkit
    here: Sequence[Gpu]
    compiled: dict[int, Compiled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        deployments = [plan.deployment for plan, _ in self.came.judged]
        odd = next((d for d in deployments if d.cache_dir != deployments[0].cache_dir), None)
        if odd is not None:
            raise UsageError(
                f"--everything fills one root, and {odd.name} has another than {deployments[0].name}",
                "warm them one by one, or give --cache-dir",
            )

    def compile(self) -> None:
        for number, (plan, verdict) in enumerate(self.came.judged):
            if not verdict.runs:
                self.came.code = max(self.came.code, verdict.exit_code)
                continue
            with self.came.failure_of(number), _kept():
                one = compile_all(plan.deployment, self.wanted, self.toolkit, self.came.out)
                self.compiled[number] = one
        # For workers and the server: they compile into the root, and ninja finds what is there made alike.
        os.environ.update(variables_while_filling(self.came.judged[0][0].deployment))
        os.environ.update(self.toolkit.environment(os.environ))

    def finish(self) -> None:
        for number, compiled in self.compiled.items():
            deployment = self.came.judged[number][0].deployment
            with self.came.failure_of(number), _kept():
                filled = finish(deployment, self.wanted, compiled, self.here, self.came.out)
                self.came.filled[number] = filled
                self.came.code = max(self.came.code, filled.exit_code)
