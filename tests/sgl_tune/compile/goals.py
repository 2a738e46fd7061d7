"""What is to be compiled, as a recorded start shows it, without starting one."""

import sys
from pathlib import Path
from typing import Any

from sgl_tune.compile.goal import Goal, Modules

NONE = Modules((), ())


def goal(folder: Path, modules: Modules = NONE, words: tuple[str, ...] = (), **arguments: Any) -> Goal:
    return Goal(
        name="m",
        cache_dir=folder,
        arch="sm90",
        python=Path(sys.executable),
        ghost={},
        versions={"sglang": "0.5.23", "flashinfer-python": "0.7.2"},
        modules=modules,
        arguments={"tp_size": 1, "pp_size": 1, **arguments},
        words=("--model-path", "m", *words),
        environment={"FOO": "1"},
        is_contained=False,
        tunes=True,
    )
