"""Compare two files of MoE configurations, or two roots of them, in the form that `diff` prints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sgl_tune.config_files.contents import LARGEST, contents
from sgl_tune.config_files.names import FOLDER, JSON, config_name, triton_of
from sgl_tune.config_files.provenance import digest_of
from sgl_tune.reading import read_bytes

OP = "moe"


def compared(a: str, b: str) -> dict[str, Any] | None:
    """Return the comparison, or None unless both are such files or folders."""
    first, second = _files(Path(a)), _files(Path(b))
    if first is None or second is None:
        return None
    pairs = [_pair(name, first[name], second[name]) for name in sorted(first.keys() & second.keys())]
    only_a, only_b = sorted(first.keys() - second.keys()), sorted(second.keys() - first.keys())
    equal = not only_a and not only_b and all(pair["equal"] for pair in pairs)
    return {"equal": equal, "noise": equal, "pairs": pairs, "only_a": only_a, "only_b": only_b}


def lines(found: dict[str, Any]) -> Iterator[str]:
    for pair in found["pairs"]:
        if not pair["equal"]:
            yield f"{pair['a']} and {pair['b']}: {pair['same']} batch sizes the same"
        for change in pair["changed"]:
            yield f"  {change['bucket']}: {change['a']} in A, {change['b']} in B"
        for side in ("a", "b"):
            yield from (f"  only in {side.upper()}: {rows}" for rows in pair[f"only_{side}"])
    for side in ("a", "b"):
        yield from (f"only in {side.upper()}: {name}" for name in found[f"only_{side}"])
    equal = sum(pair["equal"] for pair in found["pairs"])
    yield f"{equal} of {len(found['pairs'])} pairs equal"


def _files(place: Path) -> dict[str, Path] | None:
    """Return files by their path below the common folder. A single file has the name "", so that any two
    files form a pair."""
    if place.is_file():
        return {"": place} if config_name(place.name) else None
    folder = place / FOLDER
    if not folder.is_dir():
        return None
    found = (file for below in folder.iterdir() if triton_of(below.name) for file in below.glob(f"*{JSON}"))
    return {file.relative_to(folder).as_posix(): file for file in found}


def _pair(name: str, a: Path, b: Path) -> dict[str, Any]:
    first, second = read_bytes(a, most=LARGEST), read_bytes(b, most=LARGEST)
    one, other = contents(first).entries, contents(second).entries
    both = sorted(one.keys() & other.keys())
    changed = [rows for rows in both if one[rows] != other[rows]]
    only_a, only_b = sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())
    is_equal = digest_of(first) == digest_of(second) or bool(
        one and not changed and not only_a and not only_b
    )
    return {
        "a": name or str(a),
        "b": name or str(b),
        "equal": is_equal,
        "noise": is_equal,
        "same": len(both) - len(changed),
        "changed": [_change(rows, one[rows], other[rows]) for rows in changed],
        "only_a": list(map(str, only_a)),
        "only_b": list(map(str, only_b)),
        "environment": {},
        "others": {},
    }


def _change(rows: int, a: Any, b: Any) -> dict[str, Any]:
    return {"op": OP, "bucket": rows, "key": str(rows), "a": a, "b": b, "apart": None, "noise": None}
