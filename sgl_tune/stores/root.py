"""A root of stores made right as a whole, and how a server finds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.errors import WorkFailed
from sgl_tune.stores.find import Stored
from sgl_tune.stores.relocate import Mended, Step, relocate


@dataclass(frozen=True, slots=True)
class MendedRoot:
    """`failed` stores could not be made right: each was told."""

    mended: tuple[Mended, ...]
    failed: int

    def stores(self, stored: Sequence[Stored]) -> set[str]:
        """Those that a server can look into. FlashInfer's modules are there when they are offered."""
        offered = {one.store for one in self.mended if one.changed + one.right}
        return {one.store for one in stored if one.store != "flashinfer-jit" or one.store in offered}


def mend(
    stored: Sequence[Stored],
    root: Path,
    place: str,
    dry_run: bool,
    step: Step,
    warn: Callable[[str], None],
) -> MendedRoot:
    """What cannot be mended keeps none of the others from it."""
    mended: list[Mended] = []
    failed = 0
    for one in stored:
        try:
            done = relocate(one, _seen(one, root, place), dry_run, step)
        except WorkFailed as error:
            warn(f"{error.message}; {error.remedy}" if error.remedy else error.message)
            failed += 1
        else:
            mended += [done] if done else []
    return MendedRoot(tuple(mended), failed)


def _seen(stored: Stored, root: Path, place: str) -> str:
    below = stored.path.relative_to(root).as_posix()
    return place if below == "." else f"{place.rstrip('/')}/{below}"
