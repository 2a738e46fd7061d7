"""Check that a cache directory, or a bundle, has exactly the files of a lock."""

from pathlib import Path

from sgl_tune.cli.out import Output
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.pins.lock import differences, is_pinned, lock_of, read_lock
from sgl_tune.ship.archive import opened
from sgl_tune.ship.recognised import is_bundle
from sgl_tune.units import count

_SHOWN = 10


def show_held(out: Output, lock: Path, named: str | Path | None) -> bool:
    """Print whether the bundle or the cache directory matches the lock, and return whether it does."""
    place = Path(named or default_cache_dir())
    said = against(lock, place)
    verdict = (
        f"{place} differs from {lock}: {count(len(said), 'file')}" if said else f"{place} holds to {lock}"
    )

    def human() -> None:
        for line in said[:_SHOWN]:
            out.line(line, "red", indent=2)
        if len(said) > _SHOWN:
            out.line(f"and {len(said) - _SHOWN} more", indent=2)
        out.line(verdict, "red" if said else "green")

    out.result({"ok": not said, "verdict": verdict, "differences": said}, human, quiet=said)
    return not said


def refuse_another(lock: Path, bundle: str) -> None:
    """Refuse a bundle that differs from the lock, before any of it lands."""
    if not is_bundle(bundle):
        raise UsageError(f"--lock needs a bundle's file, and {bundle} is none", "pull it with -o first")
    said = against(lock, Path(bundle))
    if said:
        raise CheckFailed(
            f"{bundle} is not the bundle of {lock}: {said[0]}; {count(len(said), 'difference')} in all",
            "unpack the bundle that was packed with the lock, or take the lock of this one",
        )


def against(lock: Path, place: Path) -> list[str]:
    if is_bundle(place):
        with opened(place) as found:
            packed = found.archive.manifest.files.items()
            files = {path: file.sha256 for path, file in packed if is_pinned(path)}
        return differences(read_lock(lock), files)
    if not place.is_dir():
        raise UsageError(f"{place}: no such folder", "name the cache directory, or a bundle")
    held, odd = lock_of(place)
    unpinned = (f"{name}: no regular file, so no lock can pin it" for name in odd)
    return [*differences(read_lock(lock), held.files), *unpinned]
