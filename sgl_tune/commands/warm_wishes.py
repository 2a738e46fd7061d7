"""How a warm is made, as typed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from sgl_tune.deployment.versions import Gpu

if TYPE_CHECKING:
    from sgl_tune.cli.out import Output
    from sgl_tune.verify.environment import Target


class DeviceKind(str, Enum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class ProofKind(str, Enum):
    none = "none"
    files = "files"
    server = "server"


@dataclass(frozen=True, slots=True)
class Wishes:
    """`target`: None where no --target is given. `here`: the GPUs of this machine."""

    dry_run: bool
    device: DeviceKind
    timeout: float
    replace: bool
    prove: ProofKind
    target: Target | None
    here: tuple[Gpu, ...]

    @property
    def is_proven(self) -> bool:
        return self.prove is not ProofKind.none

    def are_read(self, files: Iterable[Path], out: Output) -> bool:
        """Whether the server of --target takes files that were tuned in the environment of this machine."""
        if self.target is None or self.target.metadata is None:
            return True
        from sgl_tune.verify.judge import Judge, Verdict

        judge, found = Judge(self.target), True
        for file in files:
            judged = judge.judge(file, file.read_bytes())
            if judged.verdict not in (Verdict.HIT, Verdict.PARTIAL):
                out.warn(f"{self.target.origin}: {judged.findings[0].message}")
                found = False
        return found
