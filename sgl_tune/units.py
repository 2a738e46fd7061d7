"""Numbers, sizes and ages as people write and read them."""

import re
from collections.abc import Sequence

from runtime.server.units import GIB, KIB, MIB
from sgl_tune.errors import UsageError

_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _SIZES |= {_letter: 1000**_power, f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}
_AGES = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_NUMBER = r"(\d{1,15}(?:\.\d{1,6})?) ?([a-z]*)"


def parse_size(text: str, option: str = "") -> int:
    """Parse a size: `1GB`, `500 kB`, `1.5GiB`, `4096`."""
    return int(_parse(text, _SIZES, "a size such as 500MB or 1.5GiB", option))


def parse_limit(text: str, option: str) -> int:
    """Parse a size that decides what is deleted. It needs a unit, because 20 hardly means 20 bytes."""
    size = parse_size(text, option)
    if size and text.strip().isdigit():
        raise UsageError(f"{option} '{text}' is a size without its unit", f"write {size}GB or {size}MB")
    return size


def parse_age(text: str, option: str = "") -> float:
    """Return the seconds in `90s`, `30d`, `12h`, `90min`, `2w`."""
    return _parse(text, _AGES, "a time such as 90s, 12h or 30d", option)


def _parse(text: str, units: dict[str, int], wanted: str, option: str) -> float:
    match = re.fullmatch(_NUMBER, text.strip().lower())
    if not match or match[2] not in units:
        raise UsageError(f"{option} '{text}' is not {wanted}".lstrip())
    return float(match[1]) * units[match[2]]


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def shown(value: object, most: int = 60) -> str:
    """Return a value from anyone for an error's text, shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of 4,300 digits, or deep nesting
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= most else f"{text[:most]}..."


def some(names: Sequence[str], most: int = 3) -> str:
    """Return `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def human_age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return "now"


def count(number: int, noun: str) -> str:
    """Return `1 entry`, `42 entries`, `1,000 files`."""
    if number != 1:
        noun = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun}"


def memory_bytes(amount: float) -> str:
    """Return GPU memory in torch's units: `6.38 GiB`, `57 MiB`."""
    if abs(amount) >= GIB:
        return f"{amount / GIB:.2f} GiB"
    return f"{amount / MIB:.0f} MiB" if abs(amount) >= MIB else f"{amount / KIB:.0f} KiB"
