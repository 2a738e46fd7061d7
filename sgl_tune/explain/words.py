"""Values, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def in_words(name: str, value: Any) -> str:
    if name in ("decode_graphs", "prefill_graphs"):
        return sizes_text(value)
    if name == "draft" and value:
        return f"{value['key']}{'' if value['tunes'] else ', not tuned'}"
    if name == "speculative" and value:
        return "/".join(map(str, value))
    if name == "max_running_requests" and value is None:
        return "by memory"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def sizes_text(sizes: Sequence[int]) -> str:
    """`52 sizes, 1 .. 512`."""
    if len(sizes) < 4:
        return " ".join(map(str, sizes)) or "none"
    return f"{len(sizes)} sizes, {min(sizes)} .. {max(sizes)}"


def asked_text(asked: Any) -> str:
    if isinstance(asked, dict):
        return ", ".join(f"{name} {in_words('', value)}" for name, value in asked.items())
    return in_words("", asked)
