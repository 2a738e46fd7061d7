"""The option that names a lock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from sgl_tune.cli.parameters import Option

LockOption = Annotated[
    Path | None, Option("--lock", metavar="FILE", help="Fail if a file is not the one in this sgl-tune.lock.")
]
